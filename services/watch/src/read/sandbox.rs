//! Sandboxes.

use roadstead_proto::api::v1;
use roadstead_store::view;

use super::paging::created;
use super::{Call, Scope, required, scope, workspace};
use crate::refusal::Refusal;

impl Call<'_> {
    pub(super) async fn get_sandbox(&self, request: v1::GetSandboxRequest) -> Result<v1::SandboxResponse, Refusal> {
        let workspace = workspace(request.workspace_scope)?;
        let name = self.checked(Some(&workspace), required("name", request.name)).await?;
        let seen = self.database().sandbox(&workspace, &name, self.reader()).await?;
        let row = self.allowed(&workspace, seen)?.ok_or_else(|| Refusal::not_found("sandbox", &name))?;
        Ok(v1::SandboxResponse { sandbox: Some(view::sandbox(&row)), ..Default::default() })
    }

    pub(super) async fn list_sandboxes(
        &self,
        request: v1::ListSandboxesRequest,
    ) -> Result<v1::ListSandboxesResponse, Refusal> {
        let v1::ListSandboxesRequest { workspace_scope, page_size, page_token, label_selector } = request;
        let scope = scope(workspace_scope)?;
        let asked = self.asked([scope.parameter(), &label_selector], page_size, &page_token);
        let asked = self.checked(scope.name(), asked).await?;
        let page = self.checked(scope.name(), asked.page(&label_selector)).await?;
        let rows = match &scope {
            Scope::One(name) => self.allowed(name, self.database().sandboxes(name, self.reader(), page).await?)?,
            Scope::All => {
                self.platform()?;
                self.database().sandboxes_everywhere(page).await?
            }
        };
        let (sandboxes, next_page_token) =
            asked.cut(rows, view::sandbox, |row| created(row.created_at, &row.name, &row.workspace_name, row.id));
        Ok(v1::ListSandboxesResponse { sandboxes, next_page_token })
    }
}
