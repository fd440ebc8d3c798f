//! `DeleteSandbox`: at once if no session stands in the way, else when that has ended.

use bytes::Bytes;
use roadstead_proto::api::v1::{DeleteSandboxRequest, DeleteSandboxResponse, DeletionOutcome};
use roadstead_proto::internal::Receipt;
use roadstead_store::mutation::{Loaded, Locks, Reads, Sandboxes, Write};

use super::session::{happened, named};
use super::{Decision, Operation};
use crate::context::Context;
use crate::ledger::{Address, replay};
use crate::phase::Event;
use crate::refusal::Refusal;
use crate::validate::name;

impl Operation for DeleteSandboxRequest {
    fn address(&self) -> Address<'_> {
        Address::Workspace(self.workspace_scope.as_ref())
    }

    fn request_id(&self) -> &str {
        &self.request_id
    }

    fn plan(&self, locks: Locks, _: &Context<'_>) -> Result<Locks, Refusal> {
        name::label("name", &self.name)?;
        let reads = Reads { session_owner: true, ..locks.reads };
        Ok(Locks { sandboxes: Sandboxes::Named(self.name.clone()), reads, ..locks })
    }

    fn decide(&self, loaded: &Loaded, context: &Context<'_>) -> Result<Decision, Refusal> {
        let row = match named(loaded, &self.name) {
            Ok(row) => row,
            Err(_) if self.allow_missing => {
                return Ok(decision(Vec::new(), DeletionOutcome::AlreadyAbsent, String::new()));
            }
            Err(missing) => return Err(missing),
        };
        let (_, writes) = happened(row, Event::Delete, loaded, context)?;
        let gone = matches!(writes.as_slice(), [Write::DeleteSandbox(_)]);
        let outcome = if gone { DeletionOutcome::Completed } else { DeletionOutcome::Accepted };
        Ok(decision(writes, outcome, row.id.to_string()))
    }

    fn replay(&self, receipt: &Receipt, _: &Loaded, _: &Context<'_>) -> Option<Bytes> {
        let deletion = replay::recorded(receipt)?.clone();
        let response = DeleteSandboxResponse { outcome: deletion.outcome, sandbox_id: deletion.sandbox_id };
        Some(replay::encoded(&response))
    }
}

fn decision(writes: Vec<Write>, outcome: DeletionOutcome, sandbox_id: String) -> Decision {
    let response = DeleteSandboxResponse { outcome: outcome.into(), sandbox_id: sandbox_id.clone() };
    Decision::new(writes, &response, replay::sandbox_deletion(outcome, sandbox_id))
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::v1::SandboxPhase;
    use roadstead_store::mutation::SessionOwner;
    use roadstead_store::row;

    use super::*;
    use crate::sample::{self, World};

    fn decide(allow_missing: bool, loaded: &Loaded) -> Result<Decision, Refusal> {
        let request = DeleteSandboxRequest { name: "s".into(), allow_missing, ..Default::default() };
        request.decide(loaded, &World::user().context())
    }

    fn outcome(decision: &Decision) -> (DeletionOutcome, String) {
        let deletion = replay::recorded(&decision.receipt).unwrap();
        (deletion.outcome(), deletion.sandbox_id.clone())
    }

    fn found(row: row::Sandbox, owner: SessionOwner) -> Loaded {
        Loaded { sandboxes: vec![row], session_owner: Some(owner), ..sample::in_workspace() }
    }

    #[test]
    fn without_a_session_it_goes_at_once() {
        let row = sample::sandbox("s");
        for loaded in [found(row.clone(), SessionOwner::Alive), found(sample::ready_sandbox("s"), SessionOwner::Gone)] {
            let decision = decide(false, &loaded).unwrap();
            assert!(matches!(decision.writes.as_slice(), [Write::DeleteSandbox(id)] if *id == row.id));
            assert_eq!(outcome(&decision), (DeletionOutcome::Completed, row.id.to_string()));
        }
    }

    #[test]
    fn with_a_live_session_it_is_marked_and_a_repeat_changes_nothing() {
        let decision = decide(false, &found(sample::ready_sandbox("s"), SessionOwner::Alive)).unwrap();
        assert_eq!(outcome(&decision).0, DeletionOutcome::Accepted);
        let [Write::UpdateSandbox(marked)] = decision.writes.as_slice() else { panic!("{:?}", decision.writes) };
        assert_eq!((marked.phase, marked.deletion_at), (SandboxPhase::Deleting, Some(sample::NOW)));

        let again = decide(false, &found(marked.clone(), SessionOwner::Alive)).unwrap();
        assert!(again.writes.is_empty());
        assert_eq!(outcome(&again).0, DeletionOutcome::Accepted);
    }

    #[test]
    fn a_missing_one_is_told_apart() {
        assert!(matches!(decide(false, &sample::in_workspace()), Err(Refusal::NotFound { .. })));
        assert_eq!(
            outcome(&decide(true, &sample::in_workspace()).unwrap()),
            (DeletionOutcome::AlreadyAbsent, String::new())
        );
    }
}
