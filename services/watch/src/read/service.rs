//! Services that sandboxes expose.

use roadstead_proto::api::v1;
use roadstead_store::row::{ServiceEndpoint, service_name};
use roadstead_store::view;

use super::paging::created;
use super::{Call, Scope, plain, required, scope, workspace};
use crate::refusal::Refusal;

impl Call<'_> {
    /// Without a name, the sandbox's one service that has none.
    pub(super) async fn get_service(
        &self,
        request: v1::GetServiceRequest,
    ) -> Result<v1::ServiceEndpointResponse, Refusal> {
        let workspace = workspace(request.workspace_scope)?;
        let sandbox = self.checked(Some(&workspace), required("sandbox", request.sandbox)).await?;
        let name = self.checked(Some(&workspace), plain("name", request.name)).await?;
        let seen = self.database().service(&workspace, &sandbox, &name, self.reader()).await?;
        let row = self.allowed(&workspace, seen)?;
        let row = row.ok_or_else(|| Refusal::not_found("service", &service_name(&sandbox, &name)))?;
        Ok(self.shown(&row))
    }

    /// Of all workspaces, of one, or of one sandbox.
    pub(super) async fn list_services(
        &self,
        request: v1::ListServicesRequest,
    ) -> Result<v1::ListServicesResponse, Refusal> {
        let v1::ListServicesRequest { workspace_scope, sandbox, page_size, page_token } = request;
        let scope = scope(workspace_scope)?;
        let sandbox = self.checked(scope.name(), plain("sandbox", sandbox)).await?;
        let asked =
            self.checked(scope.name(), self.asked([scope.parameter(), &sandbox], page_size, &page_token)).await?;
        let page = asked.page("")?;
        let rows = match &scope {
            Scope::One(name) if sandbox.is_empty() => {
                self.allowed(name, self.database().services(name, self.reader(), page).await?)?
            }
            Scope::One(name) => {
                let seen = self.database().sandbox_services(name, &sandbox, self.reader(), page).await?;
                self.allowed(name, seen)?.ok_or_else(|| Refusal::not_found("sandbox", &sandbox))?
            }
            Scope::All => {
                self.platform()?;
                if !sandbox.is_empty() {
                    return Err(Refusal::field("sandbox", "must be left out when all workspaces are asked for"));
                }
                self.database().services_everywhere(page).await?
            }
        };
        let shown = |row: &ServiceEndpoint| self.shown(row);
        let (services, next_page_token) =
            asked.cut(rows, shown, |row| created(row.created_at, &row.name(), &row.workspace_name, row.id));
        Ok(v1::ListServicesResponse { services, next_page_token })
    }

    fn shown(&self, row: &ServiceEndpoint) -> v1::ServiceEndpointResponse {
        let url = self.reads.service_urls.url(&row.workspace_name, &row.sandbox_name, &row.service);
        v1::ServiceEndpointResponse { endpoint: Some(view::service(row)), url }
    }
}
