//! `AddWorkspaceMember`.

use bytes::Bytes;
use roadstead_proto::api::v1::{AddWorkspaceMemberRequest, AddWorkspaceMemberResponse, WorkspaceRole};
use roadstead_proto::internal::Receipt;
use roadstead_store::mutation::{ByName, Loaded, Lock, Locks, Reads, Write};
use roadstead_store::{row, view};

use super::{Decision, Operation, workspace};
use crate::context::Context;
use crate::ledger::{Address, replay};
use crate::refusal::{Object, Refusal};
use crate::validate::name;

impl Operation for AddWorkspaceMemberRequest {
    fn address(&self) -> Address<'_> {
        Address::Workspace(self.workspace_scope.as_ref())
    }

    fn request_id(&self) -> &str {
        &self.request_id
    }

    fn creates(&self) -> bool {
        true
    }

    fn needs_platform_admin(&self) -> bool {
        self.role() == WorkspaceRole::Admin
    }

    fn plan(&self, locks: Locks, _: &Context<'_>) -> Result<Locks, Refusal> {
        name::subject("principal_subject", &self.principal_subject)?;
        if self.role() == WorkspaceRole::Unspecified {
            return Err(Refusal::invalid("role", "must be USER or ADMIN"));
        }
        // Additions to one workspace wait for each other, so that its count is exact.
        let workspace = locks.workspace.map(|workspace| ByName { lock: Lock::Update, ..workspace });
        let reads = Reads { member_count: true, ..locks.reads };
        Ok(Locks { workspace, member: Some(self.principal_subject.clone()), reads, ..locks })
    }

    fn decide(&self, loaded: &Loaded, context: &Context<'_>) -> Result<Decision, Refusal> {
        let workspace = workspace(loaded)?;
        if loaded.member.is_some() {
            return Err(Refusal::already_exists(Object::Member, &self.principal_subject));
        }
        let limit = context.rules.members_per_workspace;
        if loaded.member_count >= limit {
            return Err(Refusal::Exhausted(format!("a workspace has at most {limit} members; remove some first")));
        }
        let row = row::Member {
            id: context.ids.fresh(),
            workspace_id: workspace.id,
            subject: self.principal_subject.clone(),
            role: self.role(),
            resource_version: 1,
            created_at: loaded.now,
        };
        let receipt = replay::object(row.id, row.resource_version);
        let response = response(&row, &workspace.name);
        Ok(Decision::new(vec![Write::InsertMember(row)], &response, receipt))
    }

    fn replay(&self, receipt: &Receipt, loaded: &Loaded, _: &Context<'_>) -> Option<Bytes> {
        let row = loaded.member.as_ref()?;
        replay::same_version(receipt, row.id, row.resource_version)?;
        Some(replay::encoded(&response(row, &loaded.workspace.as_ref()?.name)))
    }
}

fn response(row: &row::Member, workspace: &str) -> AddWorkspaceMemberResponse {
    AddWorkspaceMemberResponse { member: Some(view::member(row, workspace)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, World};

    fn request(role: WorkspaceRole) -> AddWorkspaceMemberRequest {
        AddWorkspaceMemberRequest { principal_subject: "ann".into(), role: role.into(), ..Default::default() }
    }

    #[test]
    fn a_member_is_added_with_the_role_asked_for() {
        let decision = request(WorkspaceRole::User).decide(&sample::in_workspace(), &World::user().context()).unwrap();
        let [Write::InsertMember(row)] = decision.writes.as_slice() else { panic!("{:?}", decision.writes) };
        assert_eq!((row.subject.as_str(), row.role), ("ann", WorkspaceRole::User));
    }

    #[test]
    fn a_member_is_not_added_twice_nor_past_the_limit() {
        let decide = |loaded| request(WorkspaceRole::User).decide(&loaded, &World::user().context()).unwrap_err();
        let known = Loaded { member: Some(sample::member("ann")), ..sample::in_workspace() };
        assert!(matches!(decide(known), Refusal::AlreadyExists { object: Object::Member, .. }));
        let full = Loaded { member_count: 1000, ..sample::in_workspace() };
        assert!(matches!(decide(full), Refusal::Exhausted(_)));
    }

    #[test]
    fn only_the_platform_grants_admin_and_a_role_must_be_given() {
        assert!(request(WorkspaceRole::Admin).needs_platform_admin());
        assert!(!request(WorkspaceRole::User).needs_platform_admin());
        let plan = request(WorkspaceRole::Unspecified).plan(Locks::default(), &World::admin().context());
        assert!(matches!(plan, Err(Refusal::Invalid { .. })));
    }
}
