//! `RemoveWorkspaceMember`.

use bytes::Bytes;
use roadstead_proto::api::v1::{DeletionOutcome, RemoveWorkspaceMemberRequest, RemoveWorkspaceMemberResponse};
use roadstead_proto::internal::Receipt;
use roadstead_store::mutation::{Loaded, Locks, Write};

use super::{Decision, Operation};
use crate::context::Context;
use crate::ledger::{Address, replay};
use crate::refusal::{Object, Refusal};
use crate::validate::name;

impl Operation for RemoveWorkspaceMemberRequest {
    fn address(&self) -> Address<'_> {
        Address::Workspace(self.workspace_scope.as_ref())
    }

    fn request_id(&self) -> &str {
        &self.request_id
    }

    fn plan(&self, locks: Locks, _: &Context<'_>) -> Result<Locks, Refusal> {
        name::subject("principal_subject", &self.principal_subject)?;
        Ok(Locks { member: Some(self.principal_subject.clone()), ..locks })
    }

    fn decide(&self, loaded: &Loaded, _: &Context<'_>) -> Result<Decision, Refusal> {
        let (writes, outcome) = match &loaded.member {
            Some(row) => {
                let write = Write::DeleteMember { workspace_id: row.workspace_id, subject: row.subject.clone() };
                (vec![write], DeletionOutcome::Completed)
            }
            None if self.allow_missing => (Vec::new(), DeletionOutcome::AlreadyAbsent),
            None => return Err(Refusal::not_found(Object::Member, &self.principal_subject)),
        };
        let response = RemoveWorkspaceMemberResponse { outcome: outcome.into() };
        Ok(Decision::new(writes, &response, replay::deletion(outcome)))
    }

    fn replay(&self, receipt: &Receipt, _: &Loaded, _: &Context<'_>) -> Option<Bytes> {
        let outcome = replay::recorded(receipt)?.outcome;
        Some(replay::encoded(&RemoveWorkspaceMemberResponse { outcome }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, World};

    fn decide(allow_missing: bool, loaded: &Loaded) -> Result<Decision, Refusal> {
        let principal_subject = "ann".to_owned();
        let request = RemoveWorkspaceMemberRequest { principal_subject, allow_missing, ..Default::default() };
        request.decide(loaded, &World::user().context())
    }

    #[test]
    fn a_member_goes_and_a_missing_one_is_told_apart() {
        let known = Loaded { member: Some(sample::member("ann")), ..sample::in_workspace() };
        assert!(matches!(decide(false, &known).unwrap().writes.as_slice(), [Write::DeleteMember { .. }]));
        assert!(matches!(decide(false, &sample::in_workspace()), Err(Refusal::NotFound { .. })));
        let absent = decide(true, &sample::in_workspace()).unwrap();
        assert_eq!(replay::recorded(&absent.receipt).unwrap().outcome(), DeletionOutcome::AlreadyAbsent);
    }

    #[test]
    fn a_workspace_that_is_being_deleted_still_loses_members() {
        let mut loaded = Loaded { member: Some(sample::member("ann")), ..sample::in_workspace() };
        loaded.workspace.as_mut().unwrap().terminating_since = Some(sample::NOW);
        assert!(decide(false, &loaded).is_ok());
    }
}
