//! How far the update behind a receipt has come, derived from the same rows.

use roadstead_proto::api::v1::{
    ConfigApplyOutcome as Outcome, ConfigUpdateOperationState as State, ConfigurationAdmissionState,
    ProviderReadinessState, SandboxConfigurationAdmission, SandboxPhase,
};

use super::{Desired, Verdict};

/// Where an update stands, and what its supervisor said of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settled {
    pub(crate) state: State,
    pub(crate) outcome: Outcome,
    pub(crate) error: String,
}

/// Derives it. A supervisor that observes no providers settles an update by its verdict on the whole configuration.
pub(crate) fn operation(
    phase: SandboxPhase,
    (readiness, _): Verdict,
    desired: &Desired,
    admission: Option<&SandboxConfigurationAdmission>,
) -> Settled {
    let settled = |state, outcome| Settled { state, outcome, error: String::new() };
    let verdict = admission.filter(|admission| is_of(admission, desired));
    let said = verdict.map(|verdict| (verdict.state(), verdict.error.clone()));
    match (readiness, phase, said) {
        (_, SandboxPhase::Deleting, _) => settled(State::Cancelled, Outcome::Unspecified),
        (ProviderReadinessState::Superseded, ..) => settled(State::Superseded, Outcome::Unspecified),
        (ProviderReadinessState::Ready | ProviderReadinessState::Revoked, ..)
        | (_, _, Some((ConfigurationAdmissionState::Accepted, _))) => settled(State::Applied, Outcome::Applied),
        (_, _, Some((ConfigurationAdmissionState::Rejected, error))) => {
            Settled { state: State::Failed, outcome: Outcome::FailedRetainedLastKnownGood, error }
        }
        (ProviderReadinessState::Failed, ..) => settled(State::Failed, Outcome::Unspecified),
        (_, SandboxPhase::Stopped | SandboxPhase::Completed, _) => settled(State::Inactive, Outcome::Unspecified),
        _ => settled(State::Pending, Outcome::Unspecified),
    }
}

/// Whether a verdict is on what is desired.
fn is_of(admission: &SandboxConfigurationAdmission, desired: &Desired) -> bool {
    admission.config_revision == desired.config_revision
        && admission.policy_hash == desired.policy_hash
        && admission.provider_env_revision == desired.provider_env_revision
}
