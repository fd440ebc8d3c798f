//! Workload templates.

use roadstead_proto::api::v1;
use roadstead_store::view;

use super::paging::created;
use super::{Call, Scope, required, scope, workspace};
use crate::refusal::Refusal;

impl Call<'_> {
    pub(super) async fn get_sandbox_template(
        &self,
        request: v1::GetSandboxTemplateRequest,
    ) -> Result<v1::SandboxTemplateResponse, Refusal> {
        let workspace = workspace(request.workspace_scope)?;
        let name = self.checked(Some(&workspace), required("name", request.name)).await?;
        let seen = self.database().template(&workspace, &name, self.reader()).await?;
        let row = self.allowed(&workspace, seen)?.ok_or_else(|| Refusal::not_found("template", &name))?;
        Ok(v1::SandboxTemplateResponse { template: Some(view::template(&row)) })
    }

    pub(super) async fn list_sandbox_templates(
        &self,
        request: v1::ListSandboxTemplatesRequest,
    ) -> Result<v1::ListSandboxTemplatesResponse, Refusal> {
        let v1::ListSandboxTemplatesRequest { workspace_scope, page_size, page_token, label_selector } = request;
        let scope = scope(workspace_scope)?;
        let asked = self.asked([scope.parameter(), &label_selector], page_size, &page_token);
        let asked = self.checked(scope.name(), asked).await?;
        let page = self.checked(scope.name(), asked.page(&label_selector)).await?;
        let rows = match &scope {
            Scope::One(name) => self.allowed(name, self.database().templates(name, self.reader(), page).await?)?,
            Scope::All => {
                self.platform()?;
                self.database().templates_everywhere(page).await?
            }
        };
        let (templates, next_page_token) =
            asked.cut(rows, view::template, |row| created(row.created_at, &row.name, &row.workspace_name, row.id));
        Ok(v1::ListSandboxTemplatesResponse { templates, next_page_token })
    }
}
