//! How ready a provider is on a sandbox: decided from what is desired and what the sandbox's session observes. Pure.

mod observed_receipt;
pub(crate) mod receipt;

use std::time::SystemTime;

use roadstead_policy::environment::is_environment_key;
use roadstead_proto::api::v1::{
    ProviderEnvironmentSnapshot, ProviderMutationKind, ProviderReadinessObservation, ProviderReadinessReason as Reason,
    ProviderReadinessState as State,
};
use roadstead_store::row;

/// What a sandbox is to have by now: what an observation is compared with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Desired {
    pub(crate) attachment_epoch: String,
    pub(crate) provider_env_revision: u64,
    pub(crate) config_revision: u64,
    pub(crate) policy_hash: String,
    /// Why the environment itself goes without some of the provider's credentials; unspecified if it does not.
    pub(crate) withheld: Reason,
}

/// What is known of the sandbox's session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Heard<'a> {
    /// There never was a session.
    Never,
    /// There is none now.
    Disconnected,
    /// Its supervisor does not observe providers.
    Unsupported,
    /// It has not said anything yet.
    Nothing,
    /// What it said last is too old to count.
    Lapsed,
    Observed(&'a ProviderReadinessObservation),
}

impl<'a> Heard<'a> {
    /// What the sandbox's own session said; of any other's nothing counts any more.
    pub(crate) fn of(sandbox: &row::Sandbox, observation: Option<&'a row::Observation>) -> Self {
        let Some(observation) = observation else { return Self::Never };
        match &sandbox.session {
            None => Self::Disconnected,
            Some(session) if session.id != observation.session_id => Self::Nothing,
            Some(_) if !observation.readiness_announced => Self::Unsupported,
            Some(_) => match (&observation.readiness, observation.readiness_number) {
                (Some(observed), _) => Self::Observed(observed),
                (None, 0) => Self::Nothing,
                (None, _) => Self::Lapsed,
            },
        }
    }
}

/// A state, and what is awaited or what is wrong.
pub(crate) type Verdict = (State, Reason);

/// Judges a receipt. `superseded`: something newer is desired than what it says.
pub(crate) fn judge(kind: ProviderMutationKind, superseded: bool, desired: &Desired, heard: Heard<'_>) -> Verdict {
    if superseded {
        return (State::Superseded, Reason::DesiredStateChanged);
    }
    let observed = match heard {
        Heard::Never => return (State::Persisted, Reason::WaitingForSupervisor),
        Heard::Disconnected => return (State::Pending, Reason::SupervisorDisconnected),
        Heard::Unsupported => return (State::Pending, Reason::UnsupportedSupervisor),
        Heard::Nothing => return (State::Pending, Reason::WaitingForSupervisor),
        Heard::Lapsed => return (State::Pending, Reason::SupervisorLeaseExpired),
        Heard::Observed(observed) => observed,
    };
    let said = observed.reason();
    // Said of the whole environment: whether this provider is among those meant, only what is desired of it tells.
    let goes_without = matches!(said, Reason::CredentialsWithheld | Reason::CredentialExpired);
    let withheld = desired.withheld != Reason::Unspecified;
    if let Some(awaited) = awaited(desired, observed) {
        // What is wrong with it says the supervisor better, as far as it says anything.
        return (State::Pending, if said == Reason::Unspecified || goes_without { awaited } else { said });
    }
    match said {
        Reason::CredentialInstallFailed | Reason::PolicyActivationFailed | Reason::ProcessInstallFailed => {
            return (State::Failed, said);
        }
        // A policy of its own is in force there: no evidence of what was sent.
        Reason::LocalPolicy | Reason::SnapshotMismatch | Reason::UnsupportedSupervisor => {
            return (State::Pending, said);
        }
        _ => {}
    }
    let missing = match observed {
        // Credentials that are held back are not awaited.
        ProviderReadinessObservation { credentials_installed: false, .. } if !(goes_without && withheld) => {
            Reason::WaitingForCredentials
        }
        ProviderReadinessObservation { policy_active: false, .. } => Reason::WaitingForPolicy,
        ProviderReadinessObservation { launch_environment_installed: false, .. } => Reason::WaitingForProcess,
        _ => Reason::Unspecified,
    };
    match (missing, kind) {
        (Reason::Unspecified, ProviderMutationKind::Detach) => (State::Revoked, Reason::Unspecified),
        (Reason::Unspecified, _) if withheld => (State::Withheld, desired.withheld),
        (Reason::Unspecified, _) => (State::Ready, Reason::Unspecified),
        (missing, _) => (State::Pending, missing),
    }
}

/// What an observation of something else waits for.
fn awaited(desired: &Desired, observed: &ProviderReadinessObservation) -> Option<Reason> {
    if observed.attachment_epoch != desired.attachment_epoch
        || observed.provider_env_revision != desired.provider_env_revision
    {
        Some(Reason::WaitingForCredentials)
    } else if observed.config_revision != desired.config_revision || observed.policy_hash != desired.policy_hash {
        Some(Reason::WaitingForPolicy)
    } else {
        None
    }
}

/// Why the environment goes without some of the provider's credentials, if it does. Those that are no variables are
/// never delivered, so nobody misses them.
pub(crate) fn withheld(
    provider: Option<&row::Provider>,
    environment: &ProviderEnvironmentSnapshot,
    now: SystemTime,
) -> Reason {
    let credentials = provider.into_iter().flat_map(|provider| &provider.credentials);
    let delivered = credentials.filter(|known| is_environment_key(&known.key));
    let missing = delivered.filter(|known| !environment.values.iter().any(|value| value.name == known.key));
    let expired = |known: &row::Credential| known.expires_at.is_some_and(|at| at <= now);
    let (mut any, mut only_expired) = (false, true);
    for known in missing {
        any = true;
        only_expired &= expired(known);
    }
    match (any, only_expired) {
        (false, _) => Reason::Unspecified,
        (true, true) => Reason::CredentialExpired,
        (true, false) => Reason::CredentialsWithheld,
    }
}

#[cfg(test)]
mod tests;
