//! `RegisterSession`: a session asks to become the sandbox's (D6).

use roadstead_proto::api::v1::{ConfigApplyOutcome as Outcome, ConfigurationAdmissionState, SandboxPhase};
use roadstead_proto::id;
use roadstead_proto::internal::{RegisterSession, SessionRegistered};
use roadstead_store::mutation::{Loaded, Locks, Reads, Sandboxes, Write};
use roadstead_store::row;
use uuid::Uuid;

use super::{Decision, Operation, completion, session};
use crate::caller::Caller;
use crate::context::Context;
use crate::ledger::Address;
use crate::phase::{self, Event, Why};
use crate::refusal::{Refusal, Shown};

impl Operation for RegisterSession {
    fn address(&self) -> Address<'_> {
        Address::OwnSandbox
    }

    fn plan(&self, locks: Locks, context: &Context<'_>) -> Result<Locks, Refusal> {
        let Caller::Sandbox { id, .. } = context.caller else { return Err(Refusal::Internal) };
        asked(self)?;
        session::instance(&self.instance_id)?;
        if self.provider_readiness && id::canonical(&self.instance_id).is_none() {
            return Err(Refusal::invalid("instance_id", "must be a canonical UUID to report provider readiness"));
        }
        let reads = Reads { session_owner: true, ..locks.reads };
        let reads = if self.config_push { reads } else { completion::reads(reads) };
        Ok(Locks { sandboxes: Sandboxes::ById(*id), reads, ..locks })
    }

    fn decide(&self, loaded: &Loaded, context: &Context<'_>) -> Result<Decision, Refusal> {
        let before = session::own(loaded, context)?;
        let asked = asked(self)?;
        if before.session.as_ref().is_some_and(|known| known.id == asked.id) {
            return Ok(Decision::report(Vec::new(), &registered(before)));
        }
        connectable(before, &asked, loaded)?;
        may_take_over(before, &asked, loaded)?;
        let mut row = before.clone();
        let observation = Write::PutObservation(nothing_observed(self, &row, &asked, loaded));
        begin(&mut row, asked, loaded, context);
        let said = row.status.configuration_admission.as_ref();
        let said = said.filter(|said| !self.config_push && said.instance_id == self.instance_id);
        let completed = said.and_then(|said| completion::by_verdict(said, Outcome::Unspecified, &row, loaded));
        let mut writes = vec![session::updated(&mut row), observation];
        writes.extend(completed);
        Ok(Decision::report(writes, &registered(&row)))
    }
}

fn registered(row: &row::Sandbox) -> SessionRegistered {
    SessionRegistered { workspace_id: row.workspace_id.to_string(), resource_version: row.resource_version }
}

fn asked(request: &RegisterSession) -> Result<row::Session, Refusal> {
    let id = |field: &str, text: &str| Uuid::try_parse(text).map_err(|_| Refusal::invalid(field, "must be a UUID"));
    Ok(row::Session {
        id: id("session_id", &request.session_id)?,
        bridge_id: id("bridge_id", &request.bridge_id)?,
        instance_id: request.instance_id.clone(),
        connection_epoch: request.connection_epoch,
        config_push: request.config_push,
        result_number: 0,
        end_number: 0,
    })
}

/// What an earlier session observed ends with it.
fn nothing_observed(
    request: &RegisterSession,
    row: &row::Sandbox,
    asked: &row::Session,
    loaded: &Loaded,
) -> row::Observation {
    row::Observation {
        sandbox_id: row.id,
        session_id: asked.id,
        readiness_announced: request.provider_readiness,
        readiness_number: 0,
        readiness: None,
        readiness_at: loaded.now,
        endpoint_sequence: 0,
    }
}

fn connectable(row: &row::Sandbox, asked: &row::Session, loaded: &Loaded) -> Result<(), Refusal> {
    let timed_out = row.status.provisioning.as_ref().is_some_and(|provisioning| provisioning.timeout_time.is_some());
    if phase::elapsed(row, loaded.now) || (row.phase == SandboxPhase::Error && timed_out) {
        return Err(Refusal::precondition("ProvisioningDeadlineElapsed: start the sandbox to try again"));
    }
    if !matches!(row.phase, SandboxPhase::Provisioning | SandboxPhase::Ready | SandboxPhase::Starting) {
        let (name, phase) = (Shown(&row.name), session::phase_word(row.phase));
        return Err(Refusal::precondition(format!("sandbox {name} is {phase}; its supervisor cannot connect")));
    }
    session::not_ended(row, &asked.instance_id)
}

/// Takeover needs proof: the same instance in a later connection, an owner that is gone, or one whose main process has
/// ended.
fn may_take_over(row: &row::Sandbox, asked: &row::Session, loaded: &Loaded) -> Result<(), Refusal> {
    let Some(known) = row.session.as_ref().filter(|_| session::live(row, loaded)) else { return Ok(()) };
    let later = known.instance_id == asked.instance_id && asked.connection_epoch > known.connection_epoch;
    if later || session::has_ended(row, &known.instance_id) {
        Ok(())
    } else {
        Err(Refusal::Aborted("another session holds the sandbox"))
    }
}

fn begin(row: &mut row::Sandbox, asked: row::Session, loaded: &Loaded, context: &Context<'_>) {
    let same_instance = row.session.as_ref().is_some_and(|known| known.instance_id == asked.instance_id);
    if !same_instance {
        // Another instance runs with nothing yet.
        row.session = None;
        _ = phase::apply(row, Event::SessionGone, false, session::at(loaded, context));
    }
    if asked.config_push {
        row.configuration_instance_id.clone_from(&asked.instance_id);
    }
    if row.status.main_process_instance_id != asked.instance_id {
        row.status.main_process_instance_id.clone_from(&asked.instance_id);
        row.status.main_process_started_time = None;
    }
    row.status.exit_code = None;
    row.status.endpoint_statuses.clear();
    row.status.last_token_grant_failure = None;
    let accepted = !asked.config_push && has_accepted(row, &asked.instance_id);
    row.session = Some(asked);
    if row.phase == SandboxPhase::Ready {
        return;
    }
    phase::say(&mut row.status, Why::ConfigurationPending, loaded.now);
    if accepted {
        // The new session is live whatever became of the one before it.
        _ = phase::apply(row, Event::Admitted, true, session::at(loaded, context));
    }
}

/// Whether that instance, which polls, has accepted its configuration before it connected.
fn has_accepted(row: &row::Sandbox, instance_id: &str) -> bool {
    row.status
        .configuration_admission
        .as_ref()
        .is_some_and(|known| known.state() == ConfigurationAdmissionState::Accepted && known.instance_id == instance_id)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use roadstead_proto::api::v1::{ConfigUpdateOperationState as State, SandboxConfigurationAdmission};
    use roadstead_store::mutation::{SessionOwner, Write};

    use super::completion::tests::verdict;
    use super::*;
    use crate::sample::{self, World};

    fn request(session: u128, instance: u128, epoch: u64) -> RegisterSession {
        RegisterSession {
            session_id: Uuid::from_u128(session).to_string(),
            bridge_id: Uuid::from_u128(60).to_string(),
            instance_id: Uuid::from_u128(instance).to_string(),
            connection_epoch: epoch,
            config_push: true,
            provider_readiness: true,
        }
    }

    fn decide(row: row::Sandbox, owner: SessionOwner, request: &RegisterSession) -> Result<Decision, Refusal> {
        let loaded = Loaded { sandboxes: vec![row], session_owner: Some(owner), ..sample::nothing() };
        request.decide(&loaded, &World::sandbox().context())
    }

    fn updated(decision: Decision) -> row::Sandbox {
        match decision.writes.into_iter().next() {
            Some(Write::UpdateSandbox(row)) => row,
            other => panic!("{other:?}"),
        }
    }

    use SessionOwner::{Alive, Gone};

    #[test]
    fn a_first_session_registers_and_waits_for_its_verdict() {
        let row = updated(decide(sample::sandbox("s"), Alive, &request(1, 51, 1)).unwrap());
        let session = row.session.clone().unwrap();
        assert_eq!((session.id, session.result_number, session.end_number), (Uuid::from_u128(1), 0, 0));
        assert_eq!(row.phase, SandboxPhase::Provisioning);
        assert_eq!(row.configuration_instance_id, session.instance_id);
        assert!(decide(row, Alive, &request(1, 51, 1)).unwrap().writes.is_empty());
    }

    #[test]
    fn takeover_needs_proof() {
        let held = sample::ready_sandbox("s");
        for (owner, request, allowed) in [
            (Alive, request(2, 51, 2), true),
            (Alive, request(2, 51, 1), false),
            (Alive, request(2, 52, 9), false),
            (Gone, request(2, 51, 1), true),
            (Gone, request(2, 52, 1), true),
        ] {
            let result = decide(held.clone(), owner, &request);
            assert_eq!(result.is_ok(), allowed, "{owner:?} {request:?}");
            assert!(allowed || matches!(result, Err(Refusal::Aborted(_))));
        }
    }

    #[test]
    fn the_same_instance_stays_ready_and_another_one_starts_over() {
        let same = updated(decide(sample::ready_sandbox("s"), Alive, &request(2, 51, 2)).unwrap());
        assert_eq!(same.phase, SandboxPhase::Ready);
        let other = updated(decide(sample::ready_sandbox("s"), Gone, &request(2, 52, 1)).unwrap());
        assert_eq!(other.phase, SandboxPhase::Provisioning);
    }

    #[test]
    fn a_poller_that_has_accepted_is_ready_once_it_connects() {
        let instance_id = Uuid::from_u128(51).to_string();
        let mut row = sample::sandbox("s");
        row.status.configuration_admission = Some(SandboxConfigurationAdmission {
            instance_id,
            state: ConfigurationAdmissionState::Accepted.into(),
            ..Default::default()
        });
        let poller = RegisterSession { config_push: false, ..request(1, 51, 1) };
        assert_eq!(updated(decide(row, Alive, &poller).unwrap()).phase, SandboxPhase::Ready);
    }

    #[test]
    fn what_a_poller_said_before_it_connected_ends_what_is_pending_then() {
        use ConfigurationAdmissionState::{Accepted, Pending, Rejected};
        let ended = |state, config_push, instance: u128| {
            let mut row = sample::sandbox("s");
            let loaded = Loaded { pending_receipts: true, session_owner: Some(Alive), ..sample::nothing() };
            row.status.configuration_admission = Some(verdict(state, &row, &loaded));
            let loaded = Loaded { sandboxes: vec![row], ..loaded };
            let request = RegisterSession { config_push, ..request(1, instance, 1) };
            let decision = request.decide(&loaded, &World::sandbox().context()).unwrap();
            decision.writes.into_iter().find_map(|write| match write {
                Write::SettleReceipts { end, .. } => Some(end.state),
                _ => None,
            })
        };
        assert_eq!(ended(Accepted, false, 51), Some(State::Applied));
        assert_eq!(ended(Rejected, false, 51), Some(State::Failed));
        for (state, config_push, instance) in [(Pending, false, 51), (Rejected, true, 51), (Rejected, false, 52)] {
            assert_eq!(ended(state, config_push, instance), None, "{state:?} {config_push} {instance}");
        }
    }

    #[test]
    fn an_instance_whose_main_process_has_ended_gives_way_to_a_new_one_and_does_not_come_back() {
        let mut row = row::Sandbox { phase: SandboxPhase::Starting, ..sample::ready_sandbox("s") };
        row.status.main_process_instance_id = Uuid::from_u128(51).to_string();
        row.status.main_process_started_time = Some(Default::default());
        row.status.exit_code = Some(1);
        let again = decide(row.clone(), Alive, &request(2, 51, 2)).unwrap_err();
        assert!(again.to_string().contains("has ended"), "{again}");
        let next = updated(decide(row.clone(), Alive, &request(2, 52, 1)).unwrap());
        assert_eq!(next.status.main_process_instance_id, Uuid::from_u128(52).to_string());
        assert_eq!((next.status.exit_code, next.status.main_process_started_time), (None, None));
        // As long as it runs, nobody takes its place.
        row.status.exit_code = None;
        assert!(matches!(decide(row, Alive, &request(2, 52, 1)), Err(Refusal::Aborted(_))));
    }

    #[test]
    fn a_session_of_the_same_instance_does_not_begin_its_run_anew() {
        let mut row = sample::ready_sandbox("s");
        row.status.main_process_instance_id = Uuid::from_u128(51).to_string();
        let started = row.status.main_process_started_time;
        let same = updated(decide(row, Alive, &request(2, 51, 2)).unwrap());
        assert!(started.is_some() && same.status.main_process_started_time == started);
    }

    #[test]
    fn who_comes_too_late_is_told_so_before_and_after_the_sandbox_has_timed_out() {
        let ids = sample::CountedIds::default();
        let late = row::Sandbox { deadline: Some(sample::NOW - Duration::from_secs(1)), ..sample::sandbox("s") };
        let mut timed_out = late.clone();
        let at = phase::At { now: sample::NOW, ids: &ids, window: Duration::from_secs(300) };
        assert_eq!(phase::apply(&mut timed_out, Event::Due, false, at), phase::Applied::Changed);
        for row in [late, timed_out] {
            let refused = decide(row, Alive, &request(1, 51, 1)).unwrap_err();
            assert!(refused.to_string().contains("ProvisioningDeadlineElapsed"), "{refused}");
        }
    }

    #[test]
    fn what_stops_goes_or_is_over_cannot_be_connected_to() {
        for phase in [SandboxPhase::Stopping, SandboxPhase::Stopped, SandboxPhase::Deleting, SandboxPhase::Error] {
            let row = row::Sandbox { phase, ..sample::sandbox("s") };
            assert!(matches!(decide(row, Alive, &request(1, 51, 1)), Err(Refusal::Precondition(_))), "{phase:?}");
        }
        let started = row::Sandbox { generation: 2, ..sample::sandbox("s") };
        assert!(matches!(decide(started, Alive, &request(1, 51, 1)), Err(Refusal::Unauthenticated(_))));
    }

    #[test]
    fn ids_are_checked() {
        let world = World::sandbox();
        for bad in [
            RegisterSession { session_id: "x".into(), ..request(1, 51, 1) },
            RegisterSession { instance_id: String::new(), ..request(1, 51, 1) },
            RegisterSession { instance_id: "not-a-uuid".into(), ..request(1, 51, 1) },
        ] {
            assert!(matches!(bad.plan(Locks::default(), &world.context()), Err(Refusal::Invalid { .. })));
        }
        let plain = RegisterSession { instance_id: "i".into(), provider_readiness: false, ..request(1, 51, 1) };
        assert!(plain.plan(Locks::default(), &world.context()).is_ok());
    }
}
