//! The phases of a sandbox (behaviour 3.4): one table of event and phase, and what entering a phase does to the row.
//!
//! No compute driver stands behind a sandbox, so what waits for one elsewhere waits here for the session to end.

use std::time::{Duration, SystemTime};

use roadstead_proto::api::v1::{self, ConfigurationAdmissionState, SandboxPhase};
use roadstead_store::{row, view::timestamp};
use uuid::Uuid;

use crate::context::Ids;

/// What happens to a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A user stops it.
    Stop,
    /// A user starts it.
    Start,
    /// A user deletes it.
    Delete,
    /// Its session ended, or the process that held it is gone.
    SessionGone,
    /// The supervisor of its live session runs with the present configuration.
    Admitted,
    /// Its supervisor refused the present configuration.
    Rejected,
    /// The time for connecting and accepting has passed.
    DeadlinePassed,
}

/// Why a sandbox is or is not ready, as its condition says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    SupervisorNotConnected,
    /// Connected; what it runs with is not known yet.
    ConfigurationPending,
    DependenciesReady,
    DependenciesNotReady,
    ConfigurationInvalid,
    ProvisioningTimedOut,
    Starting,
    Stopping,
    Stopped,
    Deleting,
}

/// An entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing changes.
    Stay,
    /// The phase stays, its condition says something new.
    Note(Why),
    Enter(SandboxPhase, Why),
    /// The row goes.
    Remove,
    /// The event does not fit the phase.
    Refuse,
}

/// The table. `live` says whether a session stands between the sandbox and its rest.
#[must_use]
pub const fn next(phase: SandboxPhase, event: Event, live: bool) -> Next {
    use SandboxPhase as P;
    match (event, phase) {
        (Event::Stop, P::Ready) if live => Next::Enter(P::Stopping, Why::Stopping),
        (Event::Stop, P::Stopping) if live => Next::Stay,
        (Event::Stop, P::Ready | P::Stopping) => Next::Enter(P::Stopped, Why::Stopped),
        (Event::Stop, P::Stopped) => Next::Stay,
        (Event::Stop, _) => Next::Refuse,

        (Event::Start, P::Stopped | P::Completed | P::Error) => Next::Enter(P::Starting, Why::Starting),
        (Event::Start, P::Starting | P::Ready) => Next::Stay,
        (Event::Start, _) => Next::Refuse,

        (Event::Delete, P::Deleting) if live => Next::Stay,
        (Event::Delete, _) if live => Next::Enter(P::Deleting, Why::Deleting),
        (Event::Delete, _) => Next::Remove,

        (Event::SessionGone, P::Ready) => Next::Enter(P::Provisioning, Why::DependenciesNotReady),
        (Event::SessionGone, P::Provisioning | P::Starting) => Next::Note(Why::SupervisorNotConnected),
        (Event::SessionGone, P::Stopping) => Next::Enter(P::Stopped, Why::Stopped),
        (Event::SessionGone, P::Deleting) => Next::Remove,
        (Event::SessionGone, _) => Next::Stay,

        (Event::Admitted, P::Provisioning | P::Starting) if live => Next::Enter(P::Ready, Why::DependenciesReady),
        (Event::Admitted, _) => Next::Stay,

        (Event::Rejected, P::Provisioning | P::Starting) => Next::Note(Why::ConfigurationInvalid),
        (Event::Rejected, _) => Next::Stay,

        (Event::DeadlinePassed, P::Provisioning | P::Starting) => Next::Enter(P::Error, Why::ProvisioningTimedOut),
        (Event::DeadlinePassed, _) => Next::Stay,
    }
}

impl Why {
    /// The condition's reason.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::SupervisorNotConnected => "SupervisorNotConnected",
            Self::DependenciesReady => "DependenciesReady",
            Self::DependenciesNotReady | Self::ConfigurationPending => "DependenciesNotReady",
            Self::ConfigurationInvalid => "ConfigurationInvalid",
            Self::ProvisioningTimedOut => "ProvisioningTimedOut",
            Self::Starting => "Starting",
            Self::Stopping => "Stopping",
            Self::Stopped => "Stopped",
            Self::Deleting => "Deleting",
        }
    }

    const fn message(self) -> &'static str {
        match self {
            Self::SupervisorNotConnected => "waiting for the supervisor to connect",
            Self::ConfigurationPending => "connected; waiting for the supervisor to accept its configuration",
            Self::DependenciesReady => "the supervisor is connected and runs with the present configuration",
            Self::DependenciesNotReady => "the supervisor's session ended",
            Self::ConfigurationInvalid => "the supervisor refused the configuration",
            Self::ProvisioningTimedOut => "no configuration was accepted in time; start the sandbox to try again",
            Self::Starting => "started; waiting for the supervisor to connect",
            Self::Stopping => "waiting for the supervisor's session to end",
            Self::Stopped => "stopped",
            Self::Deleting => "waiting for the supervisor's session to end",
        }
    }

    const fn ready(self) -> bool {
        matches!(self, Self::DependenciesReady)
    }
}

/// What became of the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    Unchanged,
    Changed,
    Removed,
    Refused,
}

/// Surroundings of an event.
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations, reason = "ids have nothing to show")]
pub struct At<'a> {
    pub now: SystemTime,
    pub ids: &'a dyn Ids,
    /// Time a start gives.
    pub window: Duration,
}

/// Applies an event to a row. The version of the row is left to the caller.
#[must_use]
pub fn apply(row: &mut row::Sandbox, event: Event, live: bool, at: At<'_>) -> Applied {
    match next(row.phase, event, live) {
        Next::Stay => Applied::Unchanged,
        Next::Refuse => Applied::Refused,
        Next::Remove => Applied::Removed,
        Next::Note(why) => {
            if say(&mut row.status, why, at.now) {
                Applied::Changed
            } else {
                Applied::Unchanged
            }
        }
        Next::Enter(phase, why) => {
            enter(row, phase, at);
            say(&mut row.status, why, at.now);
            Applied::Changed
        }
    }
}

fn enter(row: &mut row::Sandbox, phase: SandboxPhase, at: At<'_>) {
    row.phase = phase;
    match phase {
        SandboxPhase::Ready => {
            row.provisioning_deadline = None;
            row.status.configuration_activated = Some(true);
        }
        // Once a sandbox ran, only its supervisor's return is awaited: an outage must not turn into an error.
        SandboxPhase::Provisioning | SandboxPhase::Stopped => row.provisioning_deadline = None,
        SandboxPhase::Starting => begin(row, "start", at),
        SandboxPhase::Error => {
            row.provisioning_deadline = None;
            row.session = None;
            let provisioning = row.status.provisioning.get_or_insert_default();
            provisioning.timeout_time = Some(timestamp(at.now));
            provisioning.cleanup_completed_time = Some(timestamp(at.now));
        }
        SandboxPhase::Deleting => {
            row.provisioning_deadline = None;
            row.deletion_at = Some(at.now);
        }
        SandboxPhase::Stopping | SandboxPhase::Completed | SandboxPhase::Unknown | SandboxPhase::Unspecified => {}
    }
}

/// Opens an attempt at provisioning: a new window, nothing admitted, tokens of earlier runs void.
pub fn begin(row: &mut row::Sandbox, cause: &str, at: At<'_>) {
    let deadline = at.now + at.window;
    row.generation += 1;
    row.session = None;
    row.configuration_instance_id.clear();
    row.provisioning_deadline = Some(deadline);
    row.status.restart_count = 0;
    row.status.exit_code = None;
    row.status.next_restart_time = None;
    row.status.configuration_activated = Some(false);
    row.status.configuration_admission = Some(v1::SandboxConfigurationAdmission {
        state: ConfigurationAdmissionState::Pending.into(),
        ..Default::default()
    });
    row.status.provisioning = Some(v1::SandboxProvisioning {
        attempt_id: at.ids.fresh().to_string(),
        configuration_change_id: change_id(cause, at.ids.fresh()),
        configuration_change_time: Some(timestamp(at.now)),
        deadline: Some(timestamp(deadline)),
        admission_start_time: Some(timestamp(at.now)),
        ..Default::default()
    });
}

/// Whether the time for connecting and accepting has passed without an acceptance.
#[must_use]
pub fn elapsed(row: &row::Sandbox, now: SystemTime) -> bool {
    row.provisioning_deadline.is_some_and(|deadline| deadline < now)
}

/// Id of a configuration change: what caused it, then a fresh id.
#[must_use]
pub fn change_id(cause: &str, id: Uuid) -> String {
    format!("{cause}:{id}")
}

/// Sets the condition `Ready`; false if it said so already.
pub fn say(status: &mut v1::SandboxStatus, why: Why, now: SystemTime) -> bool {
    const READY: &str = "Ready";
    let truth = if why.ready() { "True" } else { "False" };
    let known = status.conditions.iter_mut().find(|condition| condition.r#type == READY);
    if known.as_ref().is_some_and(|known| known.reason == why.reason() && known.message == why.message()) {
        return false;
    }
    let transition_time = known.as_ref().and_then(|known| known.transition_time);
    let turned = known.as_ref().is_none_or(|condition| condition.status != truth);
    let condition = v1::SandboxCondition {
        r#type: READY.to_owned(),
        status: truth.to_owned(),
        reason: why.reason().to_owned(),
        message: why.message().to_owned(),
        transition_time: if turned { Some(timestamp(now)) } else { transition_time },
    };
    match known {
        Some(known) => *known = condition,
        None => status.conditions.push(condition),
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sample;

    const EVENTS: [Event; 7] = [
        Event::Stop,
        Event::Start,
        Event::Delete,
        Event::SessionGone,
        Event::Admitted,
        Event::Rejected,
        Event::DeadlinePassed,
    ];

    fn at(ids: &sample::CountedIds, seconds: u64) -> At<'_> {
        At { now: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds), ids, window: Duration::from_secs(300) }
    }

    fn reason(row: &row::Sandbox) -> &str {
        &row.status.conditions[0].reason
    }

    proptest! {
        /// What must hold of a sandbox whatever happens to it, in any order.
        #[test]
        fn the_invariants_hold_on_every_path(
            steps in proptest::collection::vec((proptest::sample::select(&EVENTS[..]), any::<bool>()), 0..40),
        ) {
            let ids = sample::CountedIds::default();
            let mut row = sample::sandbox("s");
            for (step, (event, connects)) in steps.into_iter().enumerate() {
                if connects && matches!(row.phase, SandboxPhase::Provisioning | SandboxPhase::Starting | SandboxPhase::Ready) {
                    row.session = Some(sample::session(step as u128));
                }
                let before = row.clone();
                let live = row.session.is_some() && event != Event::SessionGone;
                if event == Event::SessionGone { row.session = None; }
                match apply(&mut row, event, live, at(&ids, step as u64)) {
                    Applied::Removed => {
                        prop_assert!(matches!(event, Event::Delete | Event::SessionGone));
                        prop_assert!(!live);
                        break;
                    }
                    Applied::Refused => prop_assert_eq!(&row, &before),
                    Applied::Unchanged | Applied::Changed => {}
                }
                let ready = row.phase == SandboxPhase::Ready;
                prop_assert!(!ready || row.session.is_some(), "ready without a session after {:?}", event);
                prop_assert_eq!(ready, row.status.conditions.iter().any(|condition| condition.status == "True"));
                prop_assert_eq!(row.phase == SandboxPhase::Deleting, row.deletion_at.is_some());
                if row.provisioning_deadline.is_some() {
                    prop_assert!(matches!(row.phase, SandboxPhase::Provisioning | SandboxPhase::Starting));
                }
                if before.phase == SandboxPhase::Deleting {
                    prop_assert_eq!(row.phase, SandboxPhase::Deleting, "deletion has no way back");
                }
                if before.phase == SandboxPhase::Error && row.phase != SandboxPhase::Error {
                    prop_assert!(matches!(event, Event::Start | Event::Delete), "an error stays until somebody acts");
                }
                prop_assert_eq!(row.generation > before.generation, row.phase == SandboxPhase::Starting && before.phase != SandboxPhase::Starting);
            }
        }
    }

    #[test]
    fn the_table_agrees_with_the_contract() {
        use Next::{Enter, Note, Refuse, Remove, Stay};
        use SandboxPhase::{Deleting, Error, Provisioning, Ready, Starting, Stopped, Stopping};
        for (phase, event, live, expected) in [
            (Provisioning, Event::Admitted, true, Enter(Ready, Why::DependenciesReady)),
            (Provisioning, Event::Admitted, false, Stay),
            (Provisioning, Event::Rejected, true, Note(Why::ConfigurationInvalid)),
            (Provisioning, Event::DeadlinePassed, false, Enter(Error, Why::ProvisioningTimedOut)),
            (Provisioning, Event::Stop, true, Refuse),
            (Ready, Event::SessionGone, false, Enter(Provisioning, Why::DependenciesNotReady)),
            (Ready, Event::Stop, true, Enter(Stopping, Why::Stopping)),
            (Ready, Event::Stop, false, Enter(Stopped, Why::Stopped)),
            (Ready, Event::Start, true, Stay),
            (Ready, Event::DeadlinePassed, true, Stay),
            (Ready, Event::Rejected, true, Stay),
            (Stopping, Event::SessionGone, false, Enter(Stopped, Why::Stopped)),
            (Stopping, Event::Start, true, Refuse),
            (Stopped, Event::Stop, false, Stay),
            (Stopped, Event::Start, false, Enter(Starting, Why::Starting)),
            (Starting, Event::Admitted, true, Enter(Ready, Why::DependenciesReady)),
            (Error, Event::Start, false, Enter(Starting, Why::Starting)),
            (Error, Event::Admitted, true, Stay),
            (Deleting, Event::Delete, true, Stay),
            (Deleting, Event::Delete, false, Remove),
            (Deleting, Event::SessionGone, false, Remove),
            (Deleting, Event::Start, true, Refuse),
        ] {
            assert_eq!(next(phase, event, live), expected, "{phase:?} {event:?} live={live}");
        }
    }

    #[test]
    fn a_start_opens_a_new_attempt_and_voids_what_was() {
        let ids = sample::CountedIds::default();
        let mut row = sample::sandbox("s");
        row.phase = SandboxPhase::Stopped;
        row.generation = 4;
        row.status.exit_code = Some(3);
        row.configuration_instance_id = "old".into();
        assert_eq!(apply(&mut row, Event::Start, false, at(&ids, 100)), Applied::Changed);
        assert_eq!((row.phase, row.generation), (SandboxPhase::Starting, 5));
        assert_eq!(row.provisioning_deadline, Some(SystemTime::UNIX_EPOCH + Duration::from_secs(400)));
        assert_eq!((row.status.exit_code, row.configuration_instance_id.as_str()), (None, ""));
        assert_eq!(
            row.status.configuration_admission.unwrap_or_default().state(),
            ConfigurationAdmissionState::Pending
        );
        assert!(row.status.provisioning.unwrap_or_default().configuration_change_id.starts_with("start:"));
    }

    #[test]
    fn the_time_of_a_condition_moves_only_when_it_turns() {
        let ids = sample::CountedIds::default();
        let mut row = sample::sandbox("s");
        let time = |row: &row::Sandbox| row.status.conditions[0].transition_time;
        let first = time(&row);
        assert_eq!(apply(&mut row, Event::Rejected, true, at(&ids, 50)), Applied::Changed);
        assert_eq!((reason(&row), time(&row)), ("ConfigurationInvalid", first));
        assert_eq!(apply(&mut row, Event::Rejected, true, at(&ids, 60)), Applied::Unchanged);
        row.session = Some(sample::session(1));
        assert_eq!(apply(&mut row, Event::Admitted, true, at(&ids, 70)), Applied::Changed);
        assert_ne!(time(&row), first);
    }
}
