//! How the operations behind receipts end. Only what is pending moves, and what is pending is desired now: other
//! attachments, another version of the provider, a deletion, a stop and a completion end it by triggers of the database.
//! What is left to decide is what a new receipt begins with, and what a supervisor's verdict ends.

use roadstead_policy::compose::{Credential, Deployment, Inputs, PolicyRevision, Provider, compose};
use roadstead_proto::api::sandbox::SandboxConfigSnapshot;
use roadstead_proto::api::v1::{
    ConfigApplyOutcome as Outcome, ConfigUpdateOperationState as State, ConfigurationAdmissionState,
    SandboxConfigurationAdmission, SandboxPhase,
};
use roadstead_store::mutation::{Loaded, Reads, Write};
use roadstead_store::row::{self, Completion};
use secrecy::SecretString;

use super::{update_config, verdict};

/// What deciding it takes, with what is read anyway.
pub(crate) fn reads(reads: Reads) -> Reads {
    Reads {
        attached_providers: true,
        policy: true,
        global_policy: true,
        global_settings: true,
        pending_receipts: true,
        ..reads
    }
}

/// What the operation of a new receipt begins with. Without a change its content may be in effect already, if the session's
/// own instance said so; but while others of the sandbox are pending, it waits with them.
pub(crate) fn at_creation(row: &row::Sandbox, changed: bool, loaded: &Loaded) -> Completion {
    let ended = match row.phase {
        SandboxPhase::Deleting => Some(State::Cancelled),
        SandboxPhase::Stopped | SandboxPhase::Completed => Some(State::Inactive),
        _ => None,
    };
    if let Some(state) = ended {
        return Completion { state, at: Some(loaded.now), ..Completion::pending() };
    }
    let said = row.status.configuration_admission.as_ref();
    let of_session = |instance: &str| row.session.as_ref().is_some_and(|held| held.instance_id == instance);
    let said = said.filter(|said| !changed && !loaded.pending_receipts && of_session(&said.instance_id));
    said.and_then(|said| of(said, Outcome::Unspecified, row, loaded)).unwrap_or_else(Completion::pending)
}

/// Ends what is pending of a sandbox, if the verdict is on what is desired of it now.
pub(crate) fn by_verdict(
    verdict: &SandboxConfigurationAdmission,
    outcome: Outcome,
    row: &row::Sandbox,
    loaded: &Loaded,
) -> Option<Write> {
    let end = of(verdict, outcome, row, loaded).filter(|_| loaded.pending_receipts)?;
    Some(Write::SettleReceipts { sandbox_id: row.id, end })
}

fn of(
    said: &SandboxConfigurationAdmission,
    outcome: Outcome,
    row: &row::Sandbox,
    loaded: &Loaded,
) -> Option<Completion> {
    let (state, error) = match said.state() {
        ConfigurationAdmissionState::Accepted => (State::Applied, String::new()),
        ConfigurationAdmissionState::Rejected => (State::Failed, verdict::bounded(&said.error)),
        ConfigurationAdmissionState::Pending | ConfigurationAdmissionState::Unspecified => return None,
    };
    let desired = desired(row, loaded);
    let same = said.provider_env_revision == desired.provider_env_revision && said.policy_hash == desired.policy_hash;
    same.then_some(Completion { state, outcome, error, at: Some(loaded.now) })
}

/// What is composed for the sandbox now, by the function that composes its snapshots. No token shows the values of
/// credentials, so they stay sealed; nor is what the deployment adds to the other half of any weight here.
fn desired(row: &row::Sandbox, loaded: &Loaded) -> SandboxConfigSnapshot {
    let revision =
        |known: &row::PolicyRevision| PolicyRevision { version: known.version, policy: known.policy.clone() };
    let inputs = Inputs {
        attachment_epoch: row.attachment_epoch.to_string(),
        spec_policy: row.spec.policy.clone(),
        sandbox_policy: loaded.policy.as_ref().map(revision),
        global_policy: update_config::in_force(loaded).map(revision),
        providers: loaded.attached_providers.iter().map(provider).collect(),
        ..Inputs::default()
    };
    compose(inputs, &Deployment::default(), loaded.now).config
}

fn provider(row: &row::Provider) -> Provider {
    let credential = |known: &row::Credential| Credential {
        key: known.key.clone(),
        value: SecretString::default(),
        expires_at: known.expires_at,
    };
    Provider {
        id: row.id.to_string(),
        name: row.name.clone(),
        kind: row.kind.clone(),
        resource_version: row.resource_version,
        config: row.config.clone(),
        credentials: row.credentials.iter().map(credential).collect(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::sample;

    fn found() -> Loaded {
        Loaded { attached_providers: vec![sample::provider("p", &["A"])], pending_receipts: true, ..sample::nothing() }
    }

    /// A verdict of the instance of [`sample::session`] on what is desired now.
    pub(in crate::operation) fn verdict(
        state: ConfigurationAdmissionState,
        row: &row::Sandbox,
        loaded: &Loaded,
    ) -> SandboxConfigurationAdmission {
        let desired = desired(row, loaded);
        SandboxConfigurationAdmission {
            instance_id: sample::session(40).instance_id,
            state: state.into(),
            policy_hash: desired.policy_hash,
            provider_env_revision: desired.provider_env_revision,
            error: "why\n".into(),
            ..Default::default()
        }
    }

    #[test]
    fn a_verdict_ends_what_is_pending_if_it_is_on_what_is_desired() {
        use ConfigurationAdmissionState::{Accepted, Pending, Rejected, Unspecified};
        let (row, loaded) = (sample::ready_sandbox("s"), found());
        for (state, ends) in [
            (Accepted, Some((State::Applied, ""))),
            (Rejected, Some((State::Failed, "why "))),
            (Pending, None),
            (Unspecified, None),
        ] {
            let said = verdict(state, &row, &loaded);
            let end = match by_verdict(&said, Outcome::Applied, &row, &loaded) {
                Some(Write::SettleReceipts { sandbox_id, end }) if sandbox_id == row.id => Some(end),
                None => None,
                other => panic!("{other:?}"),
            };
            assert_eq!(end.as_ref().map(|end| (end.state, end.error.as_str())), ends, "{state:?}");
            let others = [
                SandboxConfigurationAdmission { policy_hash: "another".into(), ..said.clone() },
                SandboxConfigurationAdmission { provider_env_revision: 1, ..said.clone() },
            ];
            for other in others {
                assert!(by_verdict(&other, Outcome::Applied, &row, &loaded).is_none(), "{other:?}");
            }
            let none_pending = Loaded { pending_receipts: false, ..found() };
            assert!(by_verdict(&said, Outcome::Applied, &row, &none_pending).is_none());
        }
    }

    #[test]
    fn another_version_of_a_provider_or_another_policy_is_other_content() {
        let (row, before) = (sample::ready_sandbox("s"), found());
        let said = verdict(ConfigurationAdmissionState::Accepted, &row, &before);
        let mut updated = found();
        updated.attached_providers[0].resource_version += 1;
        let detached = Loaded { attached_providers: Vec::new(), ..found() };
        let policed = row::Sandbox {
            spec: roadstead_proto::api::v1::SandboxSpec { policy: Some(Default::default()), ..row.spec.clone() },
            ..row.clone()
        };
        for (row, loaded) in [(&row, &updated), (&row, &detached), (&policed, &before)] {
            assert!(by_verdict(&said, Outcome::Applied, row, loaded).is_none());
        }
        assert!(by_verdict(&said, Outcome::Applied, &row, &before).is_some());
    }

    #[test]
    fn a_receipt_begins_with_what_is_known_of_its_sandbox() {
        use ConfigurationAdmissionState::{Accepted, Rejected};
        let settled = Loaded { pending_receipts: false, ..found() };
        let of = |phase, said: Option<ConfigurationAdmissionState>, changed, loaded: &Loaded| {
            let mut row = row::Sandbox { phase, ..sample::ready_sandbox("s") };
            row.status.configuration_admission = said.map(|said| verdict(said, &row, loaded));
            let begins = at_creation(&row, changed, loaded);
            assert_eq!(begins.at.is_none(), begins.state == State::Pending);
            begins.state
        };
        for (phase, state) in [
            (SandboxPhase::Deleting, State::Cancelled),
            (SandboxPhase::Stopped, State::Inactive),
            (SandboxPhase::Completed, State::Inactive),
            (SandboxPhase::Stopping, State::Pending),
            (SandboxPhase::Error, State::Pending),
            (SandboxPhase::Provisioning, State::Pending),
            (SandboxPhase::Ready, State::Pending),
        ] {
            assert_eq!(of(phase, Some(Accepted), true, &settled), state, "{phase:?}");
        }
        // Equal content settles too, once nothing else of the sandbox is awaited.
        assert_eq!(of(SandboxPhase::Ready, Some(Accepted), false, &settled), State::Applied);
        assert_eq!(of(SandboxPhase::Ready, Some(Rejected), false, &settled), State::Failed);
        assert_eq!(of(SandboxPhase::Ready, None, false, &settled), State::Pending);
        assert_eq!(of(SandboxPhase::Ready, Some(Accepted), false, &found()), State::Pending);
        let mut gone = sample::ready_sandbox("s");
        gone.status.configuration_admission = Some(verdict(Accepted, &gone, &settled));
        gone.session = None;
        assert_eq!(at_creation(&gone, false, &settled).state, State::Pending, "its next session loads it again");
        let mut replaced = sample::ready_sandbox("s");
        let other = SandboxConfigurationAdmission {
            instance_id: "not connected".into(),
            ..verdict(Accepted, &replaced, &settled)
        };
        replaced.status.configuration_admission = Some(other);
        assert_eq!(
            at_creation(&replaced, false, &settled).state,
            State::Pending,
            "the session runs with something else"
        );
    }
}
