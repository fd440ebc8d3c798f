//! `ReportMainProcessExit`: the main process of an instance has ended. A repeat, and a word of an instance that is not the
//! present one, change nothing and are no fault: a supervisor tells it until it is answered.

use roadstead_proto::api::v1::{ReportMainProcessExitRequest, ReportMainProcessExitResponse};
use roadstead_store::mutation::{Loaded, Locks, Sandboxes};

use super::{Decision, Operation, session};
use crate::context::Context;
use crate::ledger::Address;
use crate::phase::{self, Applied, Event};
use crate::refusal::Refusal;

impl Operation for ReportMainProcessExitRequest {
    fn address(&self) -> Address<'_> {
        Address::OwnSandbox
    }

    fn plan(&self, locks: Locks, context: &Context<'_>) -> Result<Locks, Refusal> {
        let id = session::own_id(&self.sandbox_id, context)?;
        session::instance(&self.instance_id)?;
        Ok(Locks { sandboxes: Sandboxes::ById(id), ..locks })
    }

    fn decide(&self, loaded: &Loaded, context: &Context<'_>) -> Result<Decision, Refusal> {
        let before = session::own(loaded, context)?;
        let mut row = before.clone();
        let present = row.status.main_process_instance_id == self.instance_id && row.status.exit_code.is_none();
        let event = Event::Exited(self.exit_code);
        let live = row.session.is_some();
        let changed = present && phase::apply(&mut row, event, live, session::at(loaded, context)) == Applied::Changed;
        let writes = if changed { vec![session::updated(&mut row)] } else { Vec::new() };
        Ok(Decision::report(writes, &ReportMainProcessExitResponse {}))
    }
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::v1::SandboxPhase;
    use roadstead_store::mutation::Write;
    use roadstead_store::row;

    use super::*;
    use crate::sample::{self, World};

    fn report(instance_id: &str, exit_code: i32) -> ReportMainProcessExitRequest {
        let sandbox_id = sample::sandbox("s").id.to_string();
        ReportMainProcessExitRequest { sandbox_id, instance_id: instance_id.into(), exit_code }
    }

    fn running() -> row::Sandbox {
        let mut row = sample::ready_sandbox("s");
        row.status.main_process_instance_id = "i".into();
        row
    }

    fn decide(row: row::Sandbox, report: &ReportMainProcessExitRequest) -> Result<Vec<Write>, Refusal> {
        let loaded = Loaded { sandboxes: vec![row], ..sample::nothing() };
        report.decide(&loaded, &World::sandbox().context()).map(|decision| decision.writes)
    }

    #[test]
    fn an_end_counts_once_and_only_of_the_present_instance() {
        let writes = decide(running(), &report("i", 3)).unwrap();
        let [Write::UpdateSandbox(ended)] = writes.as_slice() else { panic!("{writes:?}") };
        assert_eq!((ended.phase, ended.status.exit_code), (SandboxPhase::Error, Some(3)));
        for repeated in [3, 0] {
            assert!(decide(ended.clone(), &report("i", repeated)).unwrap().is_empty());
        }
        assert!(decide(running(), &report("earlier", 3)).unwrap().is_empty());
    }

    #[test]
    fn a_repeat_of_what_was_restarted_does_not_end_it_again() {
        let row = row::Sandbox { phase: SandboxPhase::Starting, ..running() };
        let mut restarted = row;
        restarted.status.exit_code = Some(3);
        assert!(decide(restarted, &report("i", 3)).unwrap().is_empty());
    }

    #[test]
    fn an_end_while_it_is_stopped_is_what_was_asked_for() {
        for phase in [SandboxPhase::Stopping, SandboxPhase::Stopped, SandboxPhase::Deleting] {
            assert!(decide(row::Sandbox { phase, ..running() }, &report("i", 143)).unwrap().is_empty());
        }
    }

    #[test]
    fn both_ids_are_needed_and_the_token_is_the_present_runs() {
        let world = World::sandbox();
        let plan = |request: &ReportMainProcessExitRequest| request.plan(Locks::default(), &world.context()).err();
        assert!(matches!(plan(&report("", 0)), Some(Refusal::Invalid { .. })));
        let other = ReportMainProcessExitRequest { sandbox_id: "x".into(), ..report("i", 0) };
        assert!(matches!(plan(&other), Some(Refusal::Denied(_))));
        let started = row::Sandbox { generation: 2, ..running() };
        assert!(matches!(decide(started, &report("i", 0)), Err(Refusal::Unauthenticated(_))));
    }
}
