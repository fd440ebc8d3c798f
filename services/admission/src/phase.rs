//! The phases of a sandbox (behaviour 3.4): one table of event and phase, and what entering a phase does to the row.
//!
//! No compute driver stands behind a sandbox, so what waits for one elsewhere waits here for the session to end.

use std::time::{Duration, SystemTime};

use roadstead_proto::api::v1::{self, ConfigurationAdmissionState, SandboxPhase};
use roadstead_store::{row, view::timestamp};
use uuid::Uuid;

use crate::context::Ids;
use crate::restart;

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
    /// The main process of the instance that its supervisor connected with has ended, with this code.
    Exited(i32),
    /// Its deadline has come.
    Due,
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
    MainProcessCompleted,
    MainProcessFailed,
    Starting,
    Restarting,
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

/// The table. `live` says whether a session stands between the sandbox and its rest, `awaits` whether it has a deadline:
/// what is ERROR or COMPLETED and has one is to be restarted then. `ended` says whether the main process of the instance
/// that connected last has ended: until another one connects, a restart can be stopped, and nothing makes it READY.
#[must_use]
pub const fn next(phase: SandboxPhase, event: Event, live: bool, awaits: bool, ended: bool) -> Next {
    use SandboxPhase as P;
    match (event, phase) {
        (Event::Stop, P::Completed | P::Error) if awaits && live => Next::Enter(P::Stopping, Why::Stopping),
        (Event::Stop, P::Completed | P::Error) if awaits => Next::Enter(P::Stopped, Why::Stopped),
        (Event::Stop, P::Starting) if ended && live => Next::Enter(P::Stopping, Why::Stopping),
        (Event::Stop, P::Starting) if ended => Next::Enter(P::Stopped, Why::Stopped),
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

        (Event::Admitted, P::Provisioning | P::Starting) if live && !ended => {
            Next::Enter(P::Ready, Why::DependenciesReady)
        }
        (Event::Admitted, _) => Next::Stay,

        (Event::Rejected, P::Provisioning | P::Starting) => Next::Note(Why::ConfigurationInvalid),
        (Event::Rejected, _) => Next::Stay,

        // Also before it is READY: a process may end before anybody heard that it had begun, or while its session is away.
        (Event::Exited(0), P::Provisioning | P::Starting | P::Ready) => {
            Next::Enter(P::Completed, Why::MainProcessCompleted)
        }
        (Event::Exited(_), P::Provisioning | P::Starting | P::Ready) => Next::Enter(P::Error, Why::MainProcessFailed),
        (Event::Exited(_), _) => Next::Stay,

        (Event::Due, P::Provisioning | P::Starting) if awaits => Next::Enter(P::Error, Why::ProvisioningTimedOut),
        (Event::Due, P::Completed | P::Error) if awaits => Next::Enter(P::Starting, Why::Restarting),
        (Event::Due, _) => Next::Stay,
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
            Self::MainProcessCompleted => "MainProcessCompleted",
            Self::MainProcessFailed => "MainProcessFailed",
            Self::Starting => "Starting",
            Self::Restarting => "Restarting",
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
            Self::MainProcessCompleted => "the main process has ended with success",
            Self::MainProcessFailed => "the main process has ended with a failure; its exit code says which",
            Self::Starting => "started; waiting for the supervisor to connect",
            Self::Restarting => "restarted as its policy says; waiting for a new instance to connect",
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
    match next(row.phase, event, live, row.deadline.is_some(), row.status.exit_code.is_some()) {
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
            enter(row, phase, why, at);
            if let Event::Exited(code) = event {
                ended(row, code, at.now);
            }
            say(&mut row.status, why, at.now);
            Applied::Changed
        }
    }
}

fn enter(row: &mut row::Sandbox, phase: SandboxPhase, why: Why, at: At<'_>) {
    row.phase = phase;
    // Once a sandbox ran, only its supervisor's return is awaited: an outage must not turn into an error.
    row.deadline = None;
    row.status.next_restart_time = None;
    match (phase, why) {
        (SandboxPhase::Ready, _) => {
            row.status.configuration_activated = Some(true);
            row.status.main_process_started_time.get_or_insert(timestamp(at.now));
        }
        (SandboxPhase::Starting, Why::Restarting) => restart(row, at),
        (SandboxPhase::Starting, _) => begin(row, "start", at),
        (SandboxPhase::Error, Why::ProvisioningTimedOut) => {
            row.session = None;
            let provisioning = row.status.provisioning.get_or_insert_default();
            provisioning.timeout_time = Some(timestamp(at.now));
            provisioning.cleanup_completed_time = Some(timestamp(at.now));
        }
        (SandboxPhase::Deleting, _) => row.deletion_at = Some(at.now),
        _ => {}
    }
}

/// Opens an attempt at provisioning: nothing of earlier runs counts, their tokens are void.
pub fn begin(row: &mut row::Sandbox, cause: &str, at: At<'_>) {
    row.generation += 1;
    row.session = None;
    row.status.main_process_instance_id.clear();
    row.status.main_process_started_time = None;
    row.status.restart_count = 0;
    row.status.exit_code = None;
    row.status.next_restart_time = None;
    attempt(row, cause, at);
}

/// Opens an attempt at provisioning for another main process of the same run. Nobody revoked anything and nobody is there
/// to hand out a new token, so the present one stays good; the ended instance is told apart by its id, and its session
/// stands until it ends or the new instance connects.
fn restart(row: &mut row::Sandbox, at: At<'_>) {
    let began = row.status.provisioning.as_ref().and_then(|provisioning| provisioning.admission_start_time);
    row.status.restart_count = row.status.restart_count.saturating_add(1);
    attempt(row, "restart", at);
    // Of the generation, which stays: what was issued before it began is void.
    row.status.provisioning.get_or_insert_default().admission_start_time = began;
}

/// A new window, and nothing admitted.
fn attempt(row: &mut row::Sandbox, cause: &str, at: At<'_>) {
    let deadline = at.now + at.window;
    row.configuration_instance_id.clear();
    row.refused_content.clear();
    row.deadline = Some(deadline);
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

/// Notes how the main process ended, and when it is to be restarted, if it is.
fn ended(row: &mut row::Sandbox, code: i32, now: SystemTime) {
    row.status.exit_code = Some(code);
    let started = row.status.main_process_started_time.and_then(|started| SystemTime::try_from(started).ok());
    let ran = started.and_then(|started| now.duration_since(started).ok()).unwrap_or_default();
    if ran >= restart::STEADY {
        row.status.restart_count = 0;
    }
    let pause = restart::pause(row.spec.restart_policy(), code, row.status.restart_count);
    row.deadline = pause.map(|pause| now + pause);
    row.status.next_restart_time = row.deadline.map(timestamp);
}

/// Whether the time for connecting and accepting has passed without an acceptance.
#[must_use]
pub fn elapsed(row: &row::Sandbox, now: SystemTime) -> bool {
    matches!(row.phase, SandboxPhase::Provisioning | SandboxPhase::Starting)
        && row.deadline.is_some_and(|deadline| deadline < now)
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

    use roadstead_proto::api::v1::SandboxRestartPolicy as Policy;

    use super::*;
    use crate::sample;

    const EVENTS: [Event; 10] = [
        Event::Stop,
        Event::Start,
        Event::Delete,
        Event::SessionGone,
        Event::Admitted,
        Event::Rejected,
        Event::Exited(0),
        Event::Exited(1),
        Event::Exited(137),
        Event::Due,
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
            policy in proptest::sample::select(vec![Policy::Never, Policy::OnFailure, Policy::Always]),
        ) {
            let ids = sample::CountedIds::default();
            let mut row = sample::sandbox("s");
            row.spec.set_restart_policy(policy);
            for (step, (event, connects)) in steps.into_iter().enumerate() {
                if connects && matches!(row.phase, SandboxPhase::Provisioning | SandboxPhase::Starting | SandboxPhase::Ready) {
                    row.session = Some(sample::session(step as u128));
                    row.status.exit_code = None;
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
                let ended = matches!(row.phase, SandboxPhase::Error | SandboxPhase::Completed);
                if row.deadline.is_some() {
                    prop_assert!(ended || matches!(row.phase, SandboxPhase::Provisioning | SandboxPhase::Starting));
                }
                let restarts = row.status.next_restart_time.is_some();
                prop_assert_eq!(restarts, ended && row.deadline.is_some());
                prop_assert!(!restarts || policy != Policy::Never);
                if row.phase == SandboxPhase::Starting {
                    prop_assert!(row.deadline.is_some(), "a start has a window");
                }
                if before.phase == SandboxPhase::Deleting {
                    prop_assert_eq!(row.phase, SandboxPhase::Deleting, "deletion has no way back");
                }
                if before.phase == SandboxPhase::Error && row.phase != SandboxPhase::Error {
                    let acted = matches!(event, Event::Start | Event::Delete);
                    prop_assert!(acted || before.deadline.is_some(), "an error stays until somebody acts");
                }
                let starts = row.phase == SandboxPhase::Starting && before.phase != SandboxPhase::Starting;
                prop_assert_eq!(row.generation > before.generation, starts && event == Event::Start);
                prop_assert_eq!(row.status.restart_count > before.status.restart_count, starts && event == Event::Due);
            }
        }
    }

    /// All of the table: each phase and event, with and without a live session, a deadline, and a process that ended.
    #[test]
    fn the_table_agrees_with_the_contract() {
        use Next::{Enter, Note, Refuse, Remove, Stay};
        use SandboxPhase as P;
        let phases = [
            P::Unspecified,
            P::Provisioning,
            P::Ready,
            P::Error,
            P::Deleting,
            P::Unknown,
            P::Stopping,
            P::Stopped,
            P::Starting,
            P::Completed,
        ];
        for phase in phases {
            let (coming, ended) =
                (matches!(phase, P::Provisioning | P::Starting), matches!(phase, P::Error | P::Completed));
            for bits in 0..8 {
                let [live, awaits, over] = [bits & 1 != 0, bits & 2 != 0, bits & 4 != 0];
                let stop = if live { Enter(P::Stopping, Why::Stopping) } else { Enter(P::Stopped, Why::Stopped) };
                let exits = coming || phase == P::Ready;
                for (event, expected) in [
                    (
                        Event::Stop,
                        match phase {
                            P::Ready => stop,
                            P::Error | P::Completed if awaits => stop,
                            P::Starting if over => stop,
                            P::Stopping if !live => stop,
                            P::Stopping | P::Stopped => Stay,
                            _ => Refuse,
                        },
                    ),
                    (
                        Event::Start,
                        match phase {
                            P::Stopped | P::Completed | P::Error => Enter(P::Starting, Why::Starting),
                            P::Starting | P::Ready => Stay,
                            _ => Refuse,
                        },
                    ),
                    (
                        Event::Delete,
                        match phase {
                            _ if !live => Remove,
                            P::Deleting => Stay,
                            _ => Enter(P::Deleting, Why::Deleting),
                        },
                    ),
                    (
                        Event::SessionGone,
                        match phase {
                            P::Ready => Enter(P::Provisioning, Why::DependenciesNotReady),
                            P::Provisioning | P::Starting => Note(Why::SupervisorNotConnected),
                            P::Stopping => Enter(P::Stopped, Why::Stopped),
                            P::Deleting => Remove,
                            _ => Stay,
                        },
                    ),
                    (
                        Event::Admitted,
                        if coming && live && !over { Enter(P::Ready, Why::DependenciesReady) } else { Stay },
                    ),
                    (Event::Rejected, if coming { Note(Why::ConfigurationInvalid) } else { Stay }),
                    (Event::Exited(0), if exits { Enter(P::Completed, Why::MainProcessCompleted) } else { Stay }),
                    (Event::Exited(9), if exits { Enter(P::Error, Why::MainProcessFailed) } else { Stay }),
                    (
                        Event::Due,
                        match phase {
                            _ if !awaits => Stay,
                            _ if coming => Enter(P::Error, Why::ProvisioningTimedOut),
                            _ if ended => Enter(P::Starting, Why::Restarting),
                            _ => Stay,
                        },
                    ),
                ] {
                    let case = format!("{phase:?} {event:?} {live} {awaits} {over}");
                    assert_eq!(next(phase, event, live, awaits, over), expected, "{case}");
                }
            }
        }
    }

    fn ended(policy: Policy, code: i32, seconds: u64) -> row::Sandbox {
        let ids = sample::CountedIds::default();
        let mut row = sample::ready_sandbox("s");
        row.spec.set_restart_policy(policy);
        assert_eq!(apply(&mut row, Event::Exited(code), true, at(&ids, seconds)), Applied::Changed);
        row
    }

    #[test]
    fn an_end_is_kept_with_its_code_and_the_policy_says_what_follows() {
        for (policy, code, phase, why, restarts) in [
            (Policy::Never, 0, SandboxPhase::Completed, "MainProcessCompleted", false),
            (Policy::Never, 3, SandboxPhase::Error, "MainProcessFailed", false),
            (Policy::OnFailure, 0, SandboxPhase::Completed, "MainProcessCompleted", false),
            (Policy::OnFailure, 137, SandboxPhase::Error, "MainProcessFailed", true),
            (Policy::Always, 0, SandboxPhase::Completed, "MainProcessCompleted", true),
        ] {
            let row = ended(policy, code, 5);
            assert_eq!((row.phase, reason(&row), row.status.exit_code), (phase, why, Some(code)));
            assert_eq!((row.deadline.is_some(), row.status.next_restart_time.is_some()), (restarts, restarts));
            assert!(row.session.is_some(), "what it still has to say comes through");
            assert_eq!(row.status.provisioning.unwrap().timeout_time, None);
        }
    }

    #[test]
    fn a_restart_is_another_attempt_of_the_same_run_for_another_instance() {
        let ids = sample::CountedIds::default();
        let before = ended(Policy::Always, 1, 5);
        let mut row = before.clone();
        assert_eq!(apply(&mut row, Event::Due, true, at(&ids, 6)), Applied::Changed);
        assert_eq!((row.phase, reason(&row), row.status.restart_count), (SandboxPhase::Starting, "Restarting", 1));
        assert_eq!(row.deadline, Some(at(&ids, 306).now));
        let began = |row: &row::Sandbox| row.status.provisioning.as_ref().unwrap().admission_start_time;
        assert_eq!(began(&row), Some(timestamp(sample::NOW)));
        assert_eq!((row.generation, &row.session), (before.generation, &before.session));
        assert_eq!(row.status.exit_code, Some(1), "until a new instance connects");
        let waiting = row.clone();
        assert_eq!(apply(&mut row, Event::Admitted, true, at(&ids, 7)), Applied::Unchanged);
        assert_eq!(row, waiting, "the ended instance cannot make it ready");
    }

    #[test]
    fn pauses_grow_over_restarts_in_a_row_and_a_steady_run_begins_anew() {
        let ids = sample::CountedIds::default();
        let mut row = ended(Policy::Always, 1, 5);
        let mut now = 5;
        let mut pauses = Vec::new();
        for ran in [1, 1, 9, 10, 1] {
            let pause = row.deadline.unwrap().duration_since(at(&ids, now).now).unwrap().as_secs();
            pauses.push((pause, row.status.restart_count));
            now += pause;
            assert_eq!(apply(&mut row, Event::Due, false, at(&ids, now)), Applied::Changed);
            // A new instance connects, and runs for a while.
            (row.status.exit_code, row.status.main_process_started_time) = (None, None);
            assert_eq!(apply(&mut row, Event::Admitted, true, at(&ids, now)), Applied::Changed);
            now += ran;
            assert_eq!(apply(&mut row, Event::Exited(1), true, at(&ids, now)), Applied::Changed);
        }
        assert_eq!(pauses, [(0, 0), (1, 1), (2, 2), (4, 3), (0, 0)]);
    }

    #[test]
    fn a_stop_cancels_a_restart_and_a_start_does_not_wait_for_it() {
        let ids = sample::CountedIds::default();
        for (live, phase) in [(true, SandboxPhase::Stopping), (false, SandboxPhase::Stopped)] {
            let mut row = ended(Policy::Always, 1, 5);
            assert_eq!(apply(&mut row, Event::Stop, live, at(&ids, 6)), Applied::Changed);
            assert_eq!((row.phase, row.deadline, row.status.next_restart_time), (phase, None, None));
            assert_eq!(apply(&mut row, Event::Due, live, at(&ids, 7)), Applied::Unchanged);
            // Also once it was due, as long as no new instance has connected.
            let mut row = ended(Policy::Always, 1, 5);
            assert_eq!(apply(&mut row, Event::Due, live, at(&ids, 6)), Applied::Changed);
            let mut connected = row.clone();
            connected.status.exit_code = None;
            assert_eq!(apply(&mut connected, Event::Stop, live, at(&ids, 7)), Applied::Refused);
            assert_eq!(apply(&mut row, Event::Stop, live, at(&ids, 7)), Applied::Changed);
            assert_eq!((row.phase, row.deadline), (phase, None));
        }
        let mut row = ended(Policy::Always, 1, 5);
        row.status.restart_count = 4;
        let generation = row.generation;
        assert_eq!(apply(&mut row, Event::Start, true, at(&ids, 6)), Applied::Changed);
        assert_eq!((row.status.restart_count, row.status.exit_code, row.generation), (0, None, generation + 1));
        let mut ended = ended(Policy::Never, 1, 5);
        assert_eq!(apply(&mut ended, Event::Stop, false, at(&ids, 6)), Applied::Refused);
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
        assert_eq!(row.deadline, Some(SystemTime::UNIX_EPOCH + Duration::from_secs(400)));
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
