//! The whole table: every observation that differs from what is desired in one thing, every reason, every session.

use std::time::Duration;

use roadstead_proto::api::v1::ProviderEnvironmentValue;
use uuid::Uuid;

use super::*;

const KINDS: [ProviderMutationKind; 4] = [
    ProviderMutationKind::Attach,
    ProviderMutationKind::Detach,
    ProviderMutationKind::Update,
    ProviderMutationKind::Observe,
];

/// What an observation says of the environment, and not of one provider.
const WITHHOLDING: [Reason; 2] = [Reason::CredentialsWithheld, Reason::CredentialExpired];

fn desired() -> Desired {
    Desired {
        attachment_epoch: "epoch".into(),
        provider_env_revision: 2,
        config_revision: 3,
        policy_hash: "hash".into(),
        withheld: Reason::Unspecified,
    }
}

/// All that is desired, installed.
fn installed() -> ProviderReadinessObservation {
    ProviderReadinessObservation {
        attachment_epoch: "epoch".into(),
        provider_env_revision: 2,
        config_revision: 3,
        policy_hash: "hash".into(),
        credentials_installed: true,
        policy_active: true,
        launch_environment_installed: true,
        ..Default::default()
    }
}

fn of(kind: ProviderMutationKind, observed: &ProviderReadinessObservation) -> Verdict {
    judge(kind, false, &desired(), Heard::Observed(observed))
}

fn reasons() -> impl Iterator<Item = Reason> {
    (0..=15).map(|number| Reason::try_from(number).unwrap())
}

#[test]
fn whatever_is_observed_a_newer_desire_comes_first() {
    let observed = installed();
    let sessions = [
        Heard::Never,
        Heard::Disconnected,
        Heard::Unsupported,
        Heard::Nothing,
        Heard::Lapsed,
        Heard::Observed(&observed),
    ];
    for kind in KINDS {
        for heard in sessions {
            let verdict = judge(kind, true, &desired(), heard);
            assert_eq!(verdict, (State::Superseded, Reason::DesiredStateChanged), "{kind:?} {heard:?}");
        }
    }
}

#[test]
fn without_an_observation_the_session_says_what_is_awaited() {
    for (heard, expected) in [
        (Heard::Never, (State::Persisted, Reason::WaitingForSupervisor)),
        (Heard::Disconnected, (State::Pending, Reason::SupervisorDisconnected)),
        (Heard::Unsupported, (State::Pending, Reason::UnsupportedSupervisor)),
        (Heard::Nothing, (State::Pending, Reason::WaitingForSupervisor)),
        (Heard::Lapsed, (State::Pending, Reason::SupervisorLeaseExpired)),
    ] {
        for kind in KINDS {
            assert_eq!(judge(kind, false, &desired(), heard), expected, "{kind:?} {heard:?}");
        }
    }
}

#[test]
fn what_equals_the_desired_identity_with_all_installed_is_ready_or_revoked() {
    for kind in KINDS {
        let expected = if kind == ProviderMutationKind::Detach { State::Revoked } else { State::Ready };
        assert_eq!(of(kind, &installed()), (expected, Reason::Unspecified), "{kind:?}");
    }
}

#[test]
fn any_other_identity_is_pending_whatever_is_installed() {
    let (credentials, policy) = (Reason::WaitingForCredentials, Reason::WaitingForPolicy);
    for (other, awaited) in [
        (ProviderReadinessObservation { attachment_epoch: "before".into(), ..installed() }, credentials),
        (ProviderReadinessObservation { provider_env_revision: 1, ..installed() }, credentials),
        (ProviderReadinessObservation { config_revision: 9, ..installed() }, policy),
        (ProviderReadinessObservation { policy_hash: String::new(), ..installed() }, policy),
    ] {
        for kind in KINDS {
            let mut observed = other.clone();
            assert_eq!(of(kind, &observed), (State::Pending, awaited), "{kind:?} {observed:?}");
            for reason in reasons().skip(1) {
                observed.set_reason(reason);
                let told = if WITHHOLDING.contains(&reason) { awaited } else { reason };
                assert_eq!(of(kind, &observed), (State::Pending, told), "of something else, whatever is wrong");
            }
        }
    }
}

#[test]
fn what_is_missing_is_awaited_in_the_order_in_which_it_is_installed() {
    for flags in 0..8_u8 {
        let [credentials, policy, process] = [1, 2, 4].map(|bit| flags & bit != 0);
        let observed = ProviderReadinessObservation {
            credentials_installed: credentials,
            policy_active: policy,
            launch_environment_installed: process,
            ..installed()
        };
        let expected = match (credentials, policy, process) {
            (false, ..) => (State::Pending, Reason::WaitingForCredentials),
            (true, false, _) => (State::Pending, Reason::WaitingForPolicy),
            (true, true, false) => (State::Pending, Reason::WaitingForProcess),
            (true, true, true) => (State::Ready, Reason::Unspecified),
        };
        assert_eq!(of(ProviderMutationKind::Attach, &observed), expected, "{flags:03b}");
    }
}

#[test]
fn a_reason_counts_for_what_is_desired() {
    use State::{Failed, Pending, Ready, Revoked};
    for reason in reasons() {
        let state = match reason {
            Reason::CredentialInstallFailed | Reason::PolicyActivationFailed | Reason::ProcessInstallFailed => Failed,
            Reason::LocalPolicy | Reason::SnapshotMismatch | Reason::UnsupportedSupervisor => Pending,
            // Nothing is awaited any more where everything is installed, whatever another provider goes without.
            _ => Ready,
        };
        let mut observed = installed();
        observed.set_reason(reason);
        let said = if state == Ready { Reason::Unspecified } else { reason };
        for kind in KINDS {
            let revoked = state == Ready && kind == ProviderMutationKind::Detach;
            assert_eq!(of(kind, &observed), (if revoked { Revoked } else { state }, said), "{kind:?} {reason:?}");
        }
    }
}

#[test]
fn credentials_that_the_environment_goes_without_are_withheld_and_a_revocation_needs_none() {
    for withheld in [Reason::CredentialsWithheld, Reason::CredentialExpired] {
        let desired = Desired { withheld, ..desired() };
        for kind in KINDS {
            let verdict = judge(kind, false, &desired, Heard::Observed(&installed()));
            if kind == ProviderMutationKind::Detach {
                assert_eq!(verdict, (State::Revoked, Reason::Unspecified));
            } else {
                assert_eq!(verdict, (State::Withheld, withheld));
            }
        }
    }
}

#[test]
fn credentials_that_are_withheld_are_not_awaited_and_those_of_another_provider_excuse_nothing() {
    let withheld = Desired { withheld: Reason::CredentialExpired, ..desired() };
    for reason in WITHHOLDING {
        let mut observed = ProviderReadinessObservation { credentials_installed: false, ..installed() };
        observed.set_reason(reason);
        let verdict = |desired| judge(ProviderMutationKind::Attach, false, desired, Heard::Observed(&observed));
        assert_eq!(verdict(&withheld), (State::Withheld, Reason::CredentialExpired), "{reason:?}");
        assert_eq!(verdict(&desired()), (State::Pending, Reason::WaitingForCredentials), "{reason:?}");
    }
}

#[test]
fn what_a_provider_goes_without_is_told_by_those_of_its_credentials_that_are_variables() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
    let credential = |key: &str, expires: Option<u64>| row::Credential {
        key: key.into(),
        sealed_value: Vec::new().into(),
        expires_at: expires.map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)),
    };
    let judged = |credentials: Vec<row::Credential>, delivered: &[&str]| {
        let value = |name: &&str| ProviderEnvironmentValue { name: (*name).to_owned(), ..Default::default() };
        let values = delivered.iter().map(value).collect();
        let provider = row::Provider {
            id: Uuid::nil(),
            workspace_id: Uuid::nil(),
            name: "p".into(),
            kind: String::new(),
            profile_workspace: String::new(),
            config: row::Pairs::new(),
            credentials,
            labels: row::Pairs::new(),
            annotations: row::Pairs::new(),
            resource_version: 1,
            created_at: now,
        };
        withheld(Some(&provider), &ProviderEnvironmentSnapshot { values, ..Default::default() }, now)
    };
    let both = || vec![credential("API_KEY", None), credential("api-key", None)];
    assert_eq!(judged(both(), &["API_KEY"]), Reason::Unspecified, "a private key is never delivered");
    assert_eq!(judged(both(), &[]), Reason::CredentialsWithheld);
    let expired = || vec![credential("OLD", Some(100)), credential("api-key", None)];
    assert_eq!(judged(expired(), &[]), Reason::CredentialExpired);
    assert_eq!(judged(Vec::new(), &[]), Reason::Unspecified);
    assert_eq!(withheld(None, &ProviderEnvironmentSnapshot::default(), now), Reason::Unspecified);
}
