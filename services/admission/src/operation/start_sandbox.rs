//! `StartSandbox`: a new attempt, for which tokens of earlier ones are void.

use bytes::Bytes;
use roadstead_proto::api::v1::{SandboxResponse, StartSandboxRequest};
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

impl Operation for StartSandboxRequest {
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
        let (row, writes) = happened(named(loaded, &self.name)?, Event::Start, loaded, context)?;
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

    fn decide(row: row::Sandbox) -> Result<Decision, Refusal> {
        let session_owner = Some(SessionOwner::Alive);
        let loaded = Loaded { sandboxes: vec![row], session_owner, ..sample::in_workspace() };
        StartSandboxRequest { name: "s".into(), ..Default::default() }.decide(&loaded, &World::user().context())
    }

    #[test]
    fn a_start_voids_the_tokens_and_the_session_of_the_run_before() {
        let mut row = sample::ready_sandbox("s");
        row.phase = SandboxPhase::Error;
        let generation = row.generation;
        let decision = decide(row).unwrap();
        let [Write::UpdateSandbox(row)] = decision.writes.as_slice() else { panic!("{:?}", decision.writes) };
        assert_eq!((row.phase, row.generation, &row.session), (SandboxPhase::Starting, generation + 1, &None));
    }

    #[test]
    fn one_that_runs_stays_and_one_that_goes_cannot_be_started() {
        assert!(decide(sample::ready_sandbox("s")).unwrap().writes.is_empty());
        for phase in [SandboxPhase::Deleting, SandboxPhase::Stopping, SandboxPhase::Provisioning] {
            let row = row::Sandbox { phase, ..sample::ready_sandbox("s") };
            assert!(matches!(decide(row), Err(Refusal::Precondition(_))), "{phase:?}");
        }
    }
}
