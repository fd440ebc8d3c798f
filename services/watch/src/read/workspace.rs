//! Workspaces and members.

use roadstead_proto::api::v1;
use roadstead_store::view;

use super::paging::created;
use super::{Call, required, workspace};
use crate::refusal::Refusal;

impl Call<'_> {
    pub(super) async fn get_workspace(
        &self,
        request: v1::GetWorkspaceRequest,
    ) -> Result<v1::GetWorkspaceResponse, Refusal> {
        let name = required("name", request.name)?;
        let access = self.database().workspace(&name, self.reader()).await?;
        self.check(&name, &access)?;
        Ok(v1::GetWorkspaceResponse { workspace: access.workspace.as_ref().map(view::workspace) })
    }

    /// Shows what the caller is a member of; nobody is refused.
    pub(super) async fn list_workspaces(
        &self,
        request: v1::ListWorkspacesRequest,
    ) -> Result<v1::ListWorkspacesResponse, Refusal> {
        let v1::ListWorkspacesRequest { page_size, page_token, label_selector } = request;
        let asked = self.asked([label_selector.as_str()], page_size, &page_token)?;
        let rows = self.database().workspaces(self.reader(), asked.page(&label_selector)?).await?;
        let (workspaces, next_page_token) =
            asked.cut(rows, view::workspace, |row| created(row.created_at, &row.name, "", row.id));
        Ok(v1::ListWorkspacesResponse { workspaces, next_page_token })
    }

    pub(super) async fn list_workspace_members(
        &self,
        request: v1::ListWorkspaceMembersRequest,
    ) -> Result<v1::ListWorkspaceMembersResponse, Refusal> {
        let v1::ListWorkspaceMembersRequest { workspace_scope, page_size, page_token } = request;
        let name = workspace(workspace_scope)?;
        let asked = self.checked(Some(&name), self.asked([name.as_str()], page_size, &page_token)).await?;
        let seen = self.database().members(&name, self.reader(), asked.page("")?).await?;
        let rows = self.allowed(&name, seen)?;
        let (members, next_page_token) =
            asked.cut(rows, |row| view::member(row, &name), |row| created(row.created_at, &row.subject, &name, row.id));
        Ok(v1::ListWorkspaceMembersResponse { members, next_page_token })
    }
}
