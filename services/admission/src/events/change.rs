//! From the writes of a transaction to the events they are. Pure.

use std::collections::BTreeMap;
use std::time::SystemTime;

use bytes::Bytes;
use prost::Message as _;
use roadstead_proto::api::v1::{ConfigurationAdmissionState, PlatformEvent, SandboxPhase};
use roadstead_proto::internal::ActivityLine;
use roadstead_proto::internal::activity_line::Content;
use roadstead_store::mutation::{Conclusion, Write};
use roadstead_store::row::Sandbox;
use roadstead_store::view::timestamp;
use uuid::Uuid;

use crate::operation::session::phase_word;

const SOURCE: &str = "gateway";

/// Something that happened to a sandbox.
#[derive(Clone, Debug, PartialEq)]
pub struct Happened {
    pub sandbox_id: Uuid,
    pub event: PlatformEvent,
}

/// What a conclusion does to the sandboxes that stood before it.
#[must_use]
pub fn of(conclusion: &Conclusion, before: &[Sandbox], now: SystemTime) -> Vec<Happened> {
    match conclusion {
        Conclusion::Effect { writes, .. } => between(before, writes, now),
        Conclusion::Refusal(_) | Conclusion::Replay(_) => Vec::new(),
    }
}

/// What writes do to the sandboxes that stood before them.
#[must_use]
pub fn between(before: &[Sandbox], writes: &[Write], now: SystemTime) -> Vec<Happened> {
    let mut happened = Vec::new();
    for write in writes {
        let (row, words) = match write {
            Write::InsertSandbox(row) => (row, vec![Word::new("Created", "created".to_owned())]),
            Write::UpdateSandbox(row) => match before.iter().find(|before| before.id == row.id) {
                Some(before) => (row, changed(before, row)),
                None => continue,
            },
            _ => continue,
        };
        happened.extend(words.into_iter().map(|word| word.of(row, now)));
    }
    happened
}

/// The event as it is stored.
#[must_use]
pub fn encoded(event: PlatformEvent) -> Bytes {
    ActivityLine { content: Some(Content::Event(event)) }.encode_to_vec().into()
}

/// One thing to say.
struct Word {
    warning: bool,
    reason: String,
    message: String,
}

impl Word {
    fn new(reason: &str, message: String) -> Self {
        Self { warning: false, reason: reason.to_owned(), message }
    }

    fn of(self, row: &Sandbox, now: SystemTime) -> Happened {
        let metadata = [
            ("phase", phase_word(row.phase).to_owned()),
            // By it events can be told apart and put in order.
            ("resource_version", row.resource_version.to_string()),
        ];
        let event = PlatformEvent {
            event_time: Some(timestamp(now)),
            source: SOURCE.to_owned(),
            r#type: if self.warning { "Warning" } else { "Normal" }.to_owned(),
            reason: self.reason,
            message: self.message,
            metadata: BTreeMap::from(metadata.map(|(name, value)| (name.to_owned(), value))),
        };
        Happened { sandbox_id: row.id, event }
    }
}

fn changed(before: &Sandbox, after: &Sandbox) -> Vec<Word> {
    [session(before, after), rejection(before, after), phase(before, after)].into_iter().flatten().collect()
}

fn session(before: &Sandbox, after: &Sandbox) -> Option<Word> {
    let id = |row: &Sandbox| row.session.as_ref().map(|session| session.id);
    let (reason, message) = match (id(before), id(after)) {
        (None, Some(_)) => ("SupervisorConnected", "the supervisor has connected"),
        (Some(_), None) => ("SupervisorDisconnected", "the supervisor's session has ended or was lost"),
        (Some(before), Some(after)) if before != after => {
            ("SupervisorReplaced", "a later connection of the supervisor has taken over")
        }
        _ => return None,
    };
    Some(Word::new(reason, message.to_owned()))
}

fn rejection(before: &Sandbox, after: &Sandbox) -> Option<Word> {
    let said = after.status.configuration_admission.as_ref()?;
    let new = before.status.configuration_admission.as_ref() != Some(said);
    let rejected = said.state() == ConfigurationAdmissionState::Rejected;
    (new && rejected).then(|| Word { warning: true, ..Word::new("ConfigurationRejected", said.error.clone()) })
}

fn phase(before: &Sandbox, after: &Sandbox) -> Option<Word> {
    if before.phase == after.phase {
        return None;
    }
    let condition = after.status.conditions.first();
    let reason = condition.map_or("PhaseChanged", |condition| condition.reason.as_str());
    let why = condition.map_or(String::new(), |condition| format!(": {}", condition.message));
    let message = format!("{} → {}{why}", phase_word(before.phase), phase_word(after.phase));
    let warning = after.phase == SandboxPhase::Error
        || (before.phase == SandboxPhase::Ready && after.phase == SandboxPhase::Provisioning);
    Some(Word { warning, ..Word::new(reason, message) })
}

#[cfg(test)]
mod tests {
    use roadstead_proto::activity::LINE_BYTES;
    use roadstead_proto::api::v1::SandboxConfigurationAdmission;

    use super::*;
    use crate::sample;

    fn reasons(before: &Sandbox, after: Sandbox) -> Vec<(String, String)> {
        let happened = between(std::slice::from_ref(before), &[Write::UpdateSandbox(after)], sample::NOW);
        happened.into_iter().map(|happened| (happened.event.r#type, happened.event.reason)).collect()
    }

    fn word(warning: bool, reason: &str) -> (String, String) {
        (if warning { "Warning" } else { "Normal" }.to_owned(), reason.to_owned())
    }

    #[test]
    fn a_change_of_phase_is_told_with_its_reason_and_version() {
        let before = sample::ready_sandbox("s");
        let mut after = Sandbox { phase: SandboxPhase::Stopping, resource_version: 9, ..before.clone() };
        after.status.conditions = vec![roadstead_proto::api::v1::SandboxCondition {
            reason: "Stopping".to_owned(),
            message: "waiting".to_owned(),
            ..Default::default()
        }];
        let happened = between(&[before], &[Write::UpdateSandbox(after.clone())], sample::NOW);
        let [Happened { sandbox_id, event }] = &happened[..] else { panic!("{happened:?}") };
        assert_eq!((*sandbox_id, event.reason.as_str()), (after.id, "Stopping"));
        assert_eq!(event.message, "READY → STOPPING: waiting");
        assert_eq!((event.metadata["phase"].as_str(), event.metadata["resource_version"].as_str()), ("STOPPING", "9"));
        assert_eq!(event.event_time, Some(timestamp(sample::NOW)));
    }

    #[test]
    fn what_befalls_the_session_is_told() {
        let (with, without) = (sample::ready_sandbox("s"), Sandbox { session: None, ..sample::ready_sandbox("s") });
        let other = Sandbox { session: Some(sample::session(99)), ..with.clone() };
        assert_eq!(reasons(&without, with.clone()), [word(false, "SupervisorConnected")]);
        assert_eq!(reasons(&with, other), [word(false, "SupervisorReplaced")]);
        let lost = Sandbox { phase: SandboxPhase::Provisioning, ..without };
        let told = reasons(&with, lost);
        assert_eq!(told[0], word(false, "SupervisorDisconnected"));
        assert_eq!((told.len(), told[1].0.as_str()), (2, "Warning"));
    }

    #[test]
    fn a_rejection_is_told_once_for_each_that_is_new() {
        let before = sample::ready_sandbox("s");
        let mut rejected = before.clone();
        let mut verdict = SandboxConfigurationAdmission { error: "no".to_owned(), ..Default::default() };
        verdict.set_state(ConfigurationAdmissionState::Rejected);
        rejected.status.configuration_admission = Some(verdict);
        assert_eq!(reasons(&before, rejected.clone()), [word(true, "ConfigurationRejected")]);
        assert_eq!(reasons(&rejected, rejected.clone()), []);
    }

    #[test]
    fn a_change_that_nobody_has_to_hear_of_is_no_event() {
        let before = sample::ready_sandbox("s");
        let after = Sandbox { resource_version: 7, current_policy_version: 3, ..before.clone() };
        assert_eq!(reasons(&before, after), []);
        let refused = Conclusion::Refusal(Bytes::new());
        assert_eq!(of(&refused, &[before], sample::NOW), []);
    }

    #[test]
    fn the_largest_event_is_stored() {
        let mut after = sample::ready_sandbox("s");
        let mut verdict = SandboxConfigurationAdmission {
            error: crate::operation::verdict::bounded(&"ä".repeat(9000)),
            ..Default::default()
        };
        verdict.set_state(ConfigurationAdmissionState::Rejected);
        after.status.configuration_admission = Some(verdict);
        let happened = between(&[sample::ready_sandbox("s")], &[Write::UpdateSandbox(after)], sample::NOW);
        assert!(happened.into_iter().all(|happened| encoded(happened.event).len() <= LINE_BYTES));
    }
}
