//! What a supervisor says of its configuration, applied to a sandbox: how it took a policy revision, and whether it
//! runs with what it was given.

use roadstead_proto::api::v1::{
    ConfigurationAdmissionState, PolicyStatus, SandboxConfigurationAdmission, SandboxPhase,
};
use roadstead_store::mutation::{Loaded, Write};
use roadstead_store::{row, view::timestamp};

use super::{session, update_config};
use crate::context::Context;
use crate::phase::{self, Event};
use crate::refusal::Refusal;
use crate::validate::at_most;

/// Longest text that is kept of a supervisor's error, in bytes.
const ERROR_BYTES: usize = 1024;
const ID_BYTES: usize = 128;

/// Applies a verdict on a revision of the sandbox's own history. The revision's state decides what is still open: a
/// repeat, and a verdict on what a newer one took the place of, change nothing.
pub(crate) fn on_policy(
    row: &mut row::Sandbox,
    revision: &row::PolicyRevision,
    loaded: bool,
    error: &str,
) -> Option<Write> {
    let status = if loaded { PolicyStatus::Loaded } else { PolicyStatus::Failed };
    let open = match (revision.status, status) {
        (PolicyStatus::Pending, _) | (PolicyStatus::Failed, PolicyStatus::Loaded) => true,
        // The first revision of a sandbox counts as loaded before anybody has loaded it.
        (PolicyStatus::Loaded, PolicyStatus::Loaded) => revision.version > row.current_policy_version,
        // A policy of the deployment came over it before anybody had loaded it, and is gone.
        (PolicyStatus::Superseded, PolicyStatus::Loaded) => revision.version > row.current_policy_version,
        _ => false,
    };
    if !open {
        return None;
    }
    if loaded {
        row.current_policy_version = row.current_policy_version.max(revision.version);
    }
    let error = if loaded { String::new() } else { bounded(error) };
    Some(Write::SettlePolicy { scope: revision.scope, version: revision.version, status, error })
}

/// Settles the newest revision if it waits for a verdict that nobody will give: a policy of the deployment is in force
/// over it.
pub(crate) fn shadowed(loaded: &Loaded) -> Option<Write> {
    let newest = loaded.policy.as_ref().filter(|newest| newest.status == PolicyStatus::Pending)?;
    let (scope, version, status) = (newest.scope, newest.version, PolicyStatus::Superseded);
    update_config::in_force(loaded).map(|_| Write::SettlePolicy { scope, version, status, error: String::new() })
}

/// Applies a verdict on the configuration as a whole. The row's session is live, or there is none. A verdict of an instance
/// whose main process has ended says nothing of what a new one will run with, and changes nothing.
pub(crate) fn on_configuration(
    row: &mut row::Sandbox,
    verdict: SandboxConfigurationAdmission,
    loaded: &Loaded,
    context: &Context<'_>,
) {
    if session::has_ended(row, &verdict.instance_id) {
        return;
    }
    let state = verdict.state();
    let content = content(&verdict);
    // Another instance may have registered to take the session's place: its word is kept, and counts once it connects.
    let live = session::live_of(row, &verdict.instance_id, loaded);
    row.status.configuration_admission =
        Some(SandboxConfigurationAdmission { error: bounded(&verdict.error), ..verdict });
    let event = match state {
        ConfigurationAdmissionState::Accepted if !phase::elapsed(row, loaded.now) => Event::Admitted,
        ConfigurationAdmissionState::Rejected => {
            extend(row, content, loaded, context);
            Event::Rejected
        }
        _ => return,
    };
    // Neither event is ever refused, and neither removes the row.
    _ = phase::apply(row, event, live, session::at(loaded, context));
}

/// What a verdict is about, whoever gave it and in whatever words.
fn content(verdict: &SandboxConfigurationAdmission) -> String {
    let SandboxConfigurationAdmission { policy_version, policy_hash, config_revision, provider_env_revision, .. } =
        verdict;
    format!("{policy_version}:{config_revision:x}:{provider_env_revision:x}:{policy_hash}")
}

/// The first rejection after a change of content gives one more window for repair. What the row remembers of that outlives
/// whatever an instance says of itself when it comes back.
fn extend(row: &mut row::Sandbox, content: String, loaded: &Loaded, context: &Context<'_>) {
    let coming = matches!(row.phase, SandboxPhase::Provisioning | SandboxPhase::Starting) && row.deadline.is_some();
    if !coming || phase::elapsed(row, loaded.now) || row.refused_content == content {
        return;
    }
    row.refused_content = content;
    let deadline = loaded.now + context.rules.provisioning_window;
    row.deadline = Some(deadline);
    let provisioning = row.status.provisioning.get_or_insert_default();
    provisioning.first_rejection_time = Some(timestamp(loaded.now));
    provisioning.deadline = Some(timestamp(deadline));
}

/// Checks the texts of a verdict that comes from outside.
///
/// # Errors
/// `Invalid` with the field.
pub(crate) fn check(verdict: &SandboxConfigurationAdmission) -> Result<(), Refusal> {
    if verdict.instance_id.is_empty() {
        return Err(Refusal::invalid("admission.instance_id", "required"));
    }
    at_most("admission.instance_id", &verdict.instance_id, ID_BYTES)?;
    at_most("admission.policy_hash", &verdict.policy_hash, ID_BYTES)
}

/// Text of a supervisor as it is kept: cut, and without control characters.
pub(crate) fn bounded(text: &str) -> String {
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    let end = text.floor_char_boundary(ERROR_BYTES.min(text.len()));
    text.get(..end).unwrap_or_default().chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sample::{self, World};

    fn revision(version: u32, status: PolicyStatus) -> row::PolicyRevision {
        row::PolicyRevision {
            scope: Some(sample::sandbox("s").id),
            version,
            hash: String::new(),
            policy: Default::default(),
            status,
            load_error: String::new(),
            created_at: sample::NOW,
            loaded_at: None,
            provenance: row::Pairs::new(),
        }
    }

    /// Of the instance that has the sessions of samples.
    fn verdict(state: ConfigurationAdmissionState, config_revision: u64) -> SandboxConfigurationAdmission {
        let instance_id = sample::session(1).instance_id;
        let mut verdict = SandboxConfigurationAdmission { config_revision, instance_id, ..Default::default() };
        verdict.set_state(state);
        verdict
    }

    fn apply(row: &mut row::Sandbox, verdict: SandboxConfigurationAdmission, seconds: u64) {
        let loaded =
            roadstead_store::mutation::Loaded { now: sample::NOW + Duration::from_secs(seconds), ..sample::nothing() };
        on_configuration(row, verdict, &loaded, &World::sandbox().context());
    }

    #[test]
    fn a_verdict_settles_what_is_open_and_repeats_are_harmless() {
        use PolicyStatus::{Failed, Loaded, Pending, Superseded};
        for (status, loaded, writes, current) in [
            (Pending, true, true, 3),
            (Pending, false, true, 0),
            (Failed, true, true, 3),
            (Failed, false, false, 0),
            (Loaded, true, true, 3),
            (Loaded, false, false, 0),
            (Superseded, true, true, 3),
            (Superseded, false, false, 0),
        ] {
            let mut row = sample::sandbox("s");
            let write = on_policy(&mut row, &revision(3, status), loaded, "why");
            assert_eq!((write.is_some(), row.current_policy_version), (writes, current), "{status:?} {loaded}");
        }
        let mut row = sample::sandbox("s");
        row.current_policy_version = 3;
        assert!(on_policy(&mut row, &revision(3, Loaded), true, "").is_none());
        assert!(on_policy(&mut row, &revision(2, Superseded), true, "").is_none());
    }

    #[test]
    fn acceptance_makes_a_connected_sandbox_ready_and_no_other() {
        let mut row = sample::sandbox("s");
        apply(&mut row, verdict(ConfigurationAdmissionState::Accepted, 1), 1);
        assert_eq!(row.phase, SandboxPhase::Provisioning);
        row.session = Some(sample::session(1));
        apply(&mut row, verdict(ConfigurationAdmissionState::Accepted, 1), 2);
        assert_eq!(row.phase, SandboxPhase::Ready);
    }

    #[test]
    fn an_instance_without_the_session_makes_nothing_ready() {
        let mut row = row::Sandbox { session: Some(sample::session(1)), ..sample::sandbox("s") };
        let another = SandboxConfigurationAdmission {
            instance_id: "another".into(),
            ..verdict(ConfigurationAdmissionState::Accepted, 1)
        };
        apply(&mut row, another.clone(), 1);
        assert_eq!(row.phase, SandboxPhase::Provisioning);
        assert_eq!(row.status.configuration_admission, Some(another), "it counts once it connects");
    }

    #[test]
    fn an_acceptance_past_the_deadline_does_not_make_ready() {
        let mut row = sample::sandbox("s");
        row.session = Some(sample::session(1));
        apply(&mut row, verdict(ConfigurationAdmissionState::Accepted, 1), 301);
        assert_eq!(row.phase, SandboxPhase::Provisioning);
    }

    #[test]
    fn the_first_rejection_of_a_content_extends_the_window_and_a_repeat_does_not() {
        let deadline = |row: &row::Sandbox| row.deadline.unwrap().duration_since(sample::NOW).unwrap().as_secs();
        let mut row = sample::sandbox("s");
        assert_eq!(deadline(&row), 300);
        apply(&mut row, verdict(ConfigurationAdmissionState::Rejected, 1), 10);
        assert_eq!(deadline(&row), 310);
        let repeat = SandboxConfigurationAdmission {
            instance_id: "another".into(),
            error: "other words".into(),
            ..verdict(ConfigurationAdmissionState::Rejected, 1)
        };
        apply(&mut row, repeat.clone(), 20);
        assert_eq!(deadline(&row), 310);
        // An instance that comes back registers before it says so again.
        apply(&mut row, verdict(ConfigurationAdmissionState::Pending, 0), 25);
        apply(&mut row, repeat, 26);
        assert_eq!(deadline(&row), 310);
        apply(&mut row, verdict(ConfigurationAdmissionState::Rejected, 2), 30);
        assert_eq!(deadline(&row), 330);
        apply(&mut row, verdict(ConfigurationAdmissionState::Rejected, 3), 400);
        assert_eq!(deadline(&row), 330);
    }

    #[test]
    fn an_instance_whose_main_process_has_ended_is_not_heard_and_another_one_is() {
        use ConfigurationAdmissionState::{Accepted, Pending, Rejected};
        for phase in [SandboxPhase::Starting, SandboxPhase::Error] {
            let mut row = row::Sandbox { phase, ..sample::sandbox("s") };
            row.status.main_process_instance_id = "ended".into();
            row.status.exit_code = Some(1);
            for state in [Pending, Accepted, Rejected] {
                let before = row.clone();
                let of = |instance: &str| SandboxConfigurationAdmission {
                    instance_id: instance.into(),
                    ..verdict(state, 1)
                };
                apply(&mut row, of("ended"), 10);
                assert_eq!(row, before, "{state:?}");
                apply(&mut row, of("next"), 10);
                assert_eq!(row.status.configuration_admission.as_ref().unwrap().state(), state);
            }
        }
    }

    #[test]
    fn a_running_sandbox_stays_ready_with_what_it_has() {
        let mut row = sample::ready_sandbox("s");
        apply(&mut row, verdict(ConfigurationAdmissionState::Rejected, 1), 10);
        assert_eq!((row.phase, row.deadline), (SandboxPhase::Ready, None));
        let kept = row.status.configuration_admission.unwrap();
        assert_eq!(kept.state(), ConfigurationAdmissionState::Rejected);
    }

    #[test]
    fn kept_text_is_bounded_and_plain() {
        let kept = bounded(&format!("a\nb{}", "ä".repeat(2000)));
        assert!(kept.len() <= ERROR_BYTES && !kept.contains('\n'));
    }
}
