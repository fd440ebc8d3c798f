//! Providers. Their credentials never reach this role: it reads keys only.

use roadstead_proto::api::v1;
use roadstead_proto::internal::ListCursor;
use roadstead_store::read::Listed;
use roadstead_store::view;

use super::paging::created;
use super::{Call, Scope, required, scope, workspace};
use crate::refusal::Refusal;

impl Call<'_> {
    pub(super) async fn get_provider(&self, request: v1::GetProviderRequest) -> Result<v1::ProviderResponse, Refusal> {
        let workspace = workspace(request.workspace_scope)?;
        let name = self.checked(Some(&workspace), required("name", request.name)).await?;
        let seen = self.database().provider(&workspace, &name, self.reader()).await?;
        let row = self.allowed(&workspace, seen)?.ok_or_else(|| Refusal::not_found("provider", &name))?;
        Ok(v1::ProviderResponse { provider: Some(view::provider(&row, &workspace)), ..Default::default() })
    }

    pub(super) async fn list_providers(
        &self,
        request: v1::ListProvidersRequest,
    ) -> Result<v1::ListProvidersResponse, Refusal> {
        let v1::ListProvidersRequest { workspace_scope, page_size, page_token, label_selector } = request;
        let scope = scope(workspace_scope)?;
        let asked = self.asked([scope.parameter(), &label_selector], page_size, &page_token);
        let asked = self.checked(scope.name(), asked).await?;
        let page = self.checked(scope.name(), asked.page(&label_selector)).await?;
        let rows = match &scope {
            Scope::One(name) => {
                let Listed { items, more } =
                    self.allowed(name, self.database().providers(name, self.reader(), page).await?)?;
                Listed { items: items.into_iter().map(|row| (name.clone(), row)).collect(), more }
            }
            Scope::All => {
                self.platform()?;
                self.database().providers_everywhere(page).await?
            }
        };
        let (providers, next_page_token) = asked.cut(
            rows,
            |(workspace, row)| view::provider(row, workspace),
            |(workspace, row)| created(row.created_at, &row.name, workspace, row.id),
        );
        Ok(v1::ListProvidersResponse { providers, next_page_token })
    }

    /// In order of name.
    pub(super) async fn list_sandbox_providers(
        &self,
        request: v1::ListSandboxProvidersRequest,
    ) -> Result<v1::ListSandboxProvidersResponse, Refusal> {
        let v1::ListSandboxProvidersRequest { workspace_scope, sandbox, page_size, page_token } = request;
        let workspace = workspace(workspace_scope)?;
        let sandbox = self.checked(Some(&workspace), required("sandbox", sandbox)).await?;
        let asked = self.asked([workspace.as_str(), &sandbox], page_size, &page_token);
        let asked = self.checked(Some(&workspace), asked).await?;
        let after = asked.cursor().map_or("", |cursor| cursor.name.as_str());
        let seen = self.database().sandbox_providers(&workspace, &sandbox, self.reader(), after, asked.most()).await?;
        let rows = self.allowed(&workspace, seen)?.ok_or_else(|| Refusal::not_found("sandbox", &sandbox))?;
        let (providers, next_page_token) = asked.cut(
            rows,
            |row| view::provider(row, &workspace),
            |row| ListCursor { name: row.name.clone(), ..ListCursor::default() },
        );
        Ok(v1::ListSandboxProvidersResponse { providers, next_page_token })
    }
}
