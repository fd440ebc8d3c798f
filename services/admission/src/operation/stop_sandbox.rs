//! `StopSandbox`: at once if no session stands in the way, else when that has ended.

use bytes::Bytes;
use roadstead_proto::api::v1::{SandboxResponse, StopSandboxRequest};
use roadstead_proto::internal::Receipt;
use roadstead_store::mutation::{Loaded, Locks, Reads, Sandboxes};
use roadstead_store::{row, view};

use super::session::{happened, named};
use super::{Decision, Operation};
use crate::context::Context;
use crate::ledger::{Address, replay};
use crate::phase::Event;
use crate::refusal::Refusal;
use crate::validate::name;

impl Operation for StopSandboxRequest {
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
        let (row, writes) = happened(named(loaded, &self.name)?, Event::Stop, loaded, context)?;
        let receipt = replay::sandbox_now(row.id, !writes.is_empty(), None);
        Ok(Decision::new(writes, &response(&row), receipt))
    }

    fn replay(&self, receipt: &Receipt, loaded: &Loaded, _: &Context<'_>) -> Option<Bytes> {
        let (_, row) = replay::live_sandbox(receipt, loaded)?;
        Some(replay::encoded(&response(row)))
    }
}

fn response(row: &row::Sandbox) -> SandboxResponse {
    SandboxResponse { sandbox: Some(view::sandbox(row)), service_urls: Default::default() }
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::v1::SandboxPhase;
    use roadstead_store::mutation::{SessionOwner, Write};

    use super::*;
    use crate::sample::{self, World};

    fn decide(row: row::Sandbox, owner: SessionOwner) -> Result<Decision, Refusal> {
        let loaded = Loaded { sandboxes: vec![row], session_owner: Some(owner), ..sample::in_workspace() };
        StopSandboxRequest { name: "s".into(), ..Default::default() }.decide(&loaded, &World::user().context())
    }

    fn phase(decision: &Decision) -> SandboxPhase {
        let [Write::UpdateSandbox(row)] = decision.writes.as_slice() else { panic!("{:?}", decision.writes) };
        row.phase
    }

    #[test]
    fn it_waits_for_a_live_session_and_for_no_other() {
        let stopping = decide(sample::ready_sandbox("s"), SessionOwner::Alive).unwrap();
        assert_eq!(phase(&stopping), SandboxPhase::Stopping);
        let stopped = decide(sample::ready_sandbox("s"), SessionOwner::Gone).unwrap();
        assert_eq!(phase(&stopped), SandboxPhase::Stopped);
    }

    #[test]
    fn a_stopped_one_stays_and_one_that_does_not_run_cannot_be_stopped() {
        let mut row = sample::sandbox("s");
        assert!(matches!(decide(row.clone(), SessionOwner::Alive), Err(Refusal::Precondition(_))));
        row.phase = SandboxPhase::Stopped;
        assert!(decide(row, SessionOwner::Alive).unwrap().writes.is_empty());
    }

    #[test]
    fn a_replay_shows_the_original_as_it_is_now_and_no_namesake() {
        let row = sample::sandbox("s");
        let request = StopSandboxRequest { name: "s".into(), ..Default::default() };
        let loaded = Loaded { sandboxes: vec![row.clone()], ..sample::in_workspace() };
        let shown = request.replay(&replay::sandbox_now(row.id, true, None), &loaded, &World::user().context());
        assert_eq!(shown, Some(replay::encoded(&response(&row))));
        let other = replay::sandbox_now(uuid::Uuid::from_u128(99), true, None);
        assert_eq!(request.replay(&other, &loaded, &World::user().context()), None);
    }
}
