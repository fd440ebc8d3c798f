//! Histories of policies, newest first.

use roadstead_proto::api::datamodel::WorkspaceSelector;
use roadstead_proto::api::v1;
use roadstead_proto::internal::ListCursor;
use roadstead_store::row::PolicyRevision;
use roadstead_store::view;

use super::{Call, required, workspace};
use crate::refusal::Refusal;

impl Call<'_> {
    pub(super) async fn get_sandbox_policy_status(
        &self,
        request: v1::GetSandboxPolicyStatusRequest,
    ) -> Result<v1::GetSandboxPolicyStatusResponse, Refusal> {
        let v1::GetSandboxPolicyStatusRequest { workspace_scope, version, global, sandbox } = request;
        let wanted = (version != 0).then_some(version);
        let (revision, active_version) = if global {
            self.global_form(workspace_scope.as_ref(), &sandbox)?;
            (self.database().global_policy_revision(wanted).await?, 0)
        } else {
            let workspace = workspace(workspace_scope)?;
            let sandbox = self.checked(Some(&workspace), required("sandbox", sandbox)).await?;
            let seen = self.database().policy_revision(&workspace, &sandbox, self.reader(), wanted).await?;
            let found = self.allowed(&workspace, seen)?.ok_or_else(|| Refusal::not_found("sandbox", &sandbox))?;
            (found.revisions.items.into_iter().next(), found.active_version)
        };
        let revision = revision.ok_or_else(|| Refusal::not_found("policy revision", &version.to_string()))?;
        Ok(v1::GetSandboxPolicyStatusResponse {
            revision: Some(view::policy_revision(&revision, true)),
            active_version,
        })
    }

    pub(super) async fn list_sandbox_policies(
        &self,
        request: v1::ListSandboxPoliciesRequest,
    ) -> Result<v1::ListSandboxPoliciesResponse, Refusal> {
        let v1::ListSandboxPoliciesRequest { workspace_scope, page_size, page_token, global, sandbox } = request;
        let (revisions, next_page_token) = if global {
            self.global_form(workspace_scope.as_ref(), &sandbox)?;
            let asked = self.asked(["global"], page_size, &page_token)?;
            let before = asked.cursor().map(|cursor| cursor.version);
            asked.cut(self.database().global_policy_revisions(before, asked.most()).await?, shown, cursor)
        } else {
            let workspace = workspace(workspace_scope)?;
            let sandbox = self.checked(Some(&workspace), required("sandbox", sandbox)).await?;
            let asked = self.asked(["sandbox", &workspace, &sandbox], page_size, &page_token);
            let asked = self.checked(Some(&workspace), asked).await?;
            let before = asked.cursor().map(|cursor| cursor.version);
            let seen =
                self.database().policy_revisions(&workspace, &sandbox, self.reader(), before, asked.most()).await?;
            let found = self.allowed(&workspace, seen)?.ok_or_else(|| Refusal::not_found("sandbox", &sandbox))?;
            asked.cut(found.revisions, shown, cursor)
        };
        Ok(v1::ListSandboxPoliciesResponse { revisions, next_page_token })
    }

    /// The global history belongs to no workspace and no sandbox, and is shown to platform admins.
    fn global_form(&self, scope: Option<&WorkspaceSelector>, sandbox: &str) -> Result<(), Refusal> {
        if scope.is_some_and(|scope| scope.selection.is_some()) {
            return Err(Refusal::field("workspace_scope", "must be left out with global"));
        }
        self.platform()?;
        if !sandbox.is_empty() {
            return Err(Refusal::field("sandbox", "must be left out with global"));
        }
        Ok(())
    }
}

fn shown(revision: &PolicyRevision) -> v1::SandboxPolicyRevision {
    view::policy_revision(revision, false)
}

fn cursor(revision: &PolicyRevision) -> ListCursor {
    ListCursor { version: revision.version, ..ListCursor::default() }
}
