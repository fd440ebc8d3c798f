//! `FinalizeMainProcessExit`: all that the ended main process had to say has come through. Nothing is kept of that. It is
//! true only as long as the session stands through which it came, and may be told any number of times.

use roadstead_proto::api::v1::{FinalizeMainProcessExitRequest, FinalizeMainProcessExitResponse};
use roadstead_store::mutation::{Loaded, Locks, Reads, Sandboxes};

use super::{Decision, Operation, session};
use crate::context::Context;
use crate::ledger::Address;
use crate::refusal::Refusal;

impl Operation for FinalizeMainProcessExitRequest {
    fn address(&self) -> Address<'_> {
        Address::OwnSandbox
    }

    fn plan(&self, locks: Locks, context: &Context<'_>) -> Result<Locks, Refusal> {
        let id = session::own_id(&self.sandbox_id, context)?;
        session::instance(&self.instance_id)?;
        let reads = Reads { session_owner: true, ..locks.reads };
        Ok(Locks { sandboxes: Sandboxes::ById(id), reads, ..locks })
    }

    fn decide(&self, loaded: &Loaded, context: &Context<'_>) -> Result<Decision, Refusal> {
        let row = session::own(loaded, context)?;
        let held = row.session.as_ref().filter(|_| session::live(row, loaded));
        if held.is_none_or(|held| held.instance_id != self.instance_id) {
            return Err(Refusal::precondition("the supervisor's session is not connected"));
        }
        if row.status.main_process_instance_id != self.instance_id || row.status.exit_code.is_none() {
            return Err(Refusal::precondition("the end of this instance's main process was not reported"));
        }
        Ok(Decision::report(Vec::new(), &FinalizeMainProcessExitResponse {}))
    }
}

#[cfg(test)]
mod tests {
    use roadstead_store::mutation::SessionOwner;
    use roadstead_store::row;

    use super::*;
    use crate::sample::{self, World};

    fn request(instance_id: &str) -> FinalizeMainProcessExitRequest {
        let sandbox_id = sample::sandbox("s").id.to_string();
        FinalizeMainProcessExitRequest { sandbox_id, instance_id: instance_id.into() }
    }

    fn ended() -> (row::Sandbox, String) {
        let mut row = sample::ready_sandbox("s");
        let instance = row.session.as_ref().unwrap().instance_id.clone();
        row.status.main_process_instance_id.clone_from(&instance);
        row.status.exit_code = Some(0);
        (row, instance)
    }

    fn decide(row: row::Sandbox, owner: SessionOwner, instance: &str) -> Result<Decision, Refusal> {
        let loaded = Loaded { sandboxes: vec![row], session_owner: Some(owner), ..sample::nothing() };
        request(instance).decide(&loaded, &World::sandbox().context())
    }

    #[test]
    fn it_needs_the_session_of_the_instance_whose_end_was_reported() {
        let (row, instance) = ended();
        for _ in 0..2 {
            assert!(decide(row.clone(), SessionOwner::Alive, &instance).unwrap().writes.is_empty());
        }
        let without = row::Sandbox { session: None, ..row.clone() };
        let mut running = row.clone();
        running.status.exit_code = None;
        for (row, owner, instance) in [
            (without, SessionOwner::Alive, instance.as_str()),
            (row.clone(), SessionOwner::Gone, instance.as_str()),
            (row, SessionOwner::Alive, "another"),
            (running, SessionOwner::Alive, instance.as_str()),
        ] {
            assert!(matches!(decide(row, owner, instance), Err(Refusal::Precondition(_))));
        }
    }

    #[test]
    fn both_ids_are_needed() {
        let world = World::sandbox();
        let plan = |request: &FinalizeMainProcessExitRequest| request.plan(Locks::default(), &world.context()).err();
        assert!(matches!(plan(&request("")), Some(Refusal::Invalid { .. })));
        let other = FinalizeMainProcessExitRequest { sandbox_id: String::new(), ..request("i") };
        assert!(matches!(plan(&other), Some(Refusal::Denied(_))));
    }
}
