//! The answer to an update. Pure.

use roadstead_proto::api::sandbox::{PolicySource, SandboxConfigSnapshot};
use roadstead_proto::api::v1::{
    ConfigApplyFailure, ConfigApplyOutcome, ConfigUpdate, ConfigUpdateResult, ConfigurationAdmissionState,
    PolicyLoadResult, SandboxConfigurationAdmission,
};

use crate::behaviour::Answer;

/// What the server writes into `policy_validation_failure_mode` when the last valid configuration shall stay in effect.
const RETAIN: &str = "retain_last_valid";

/// What is to be done with an update that is news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Put every half into effect.
    Install,
    /// The configuration is not admitted, and what is in effect stays so.
    Retain,
    /// The configuration is not admitted, and nothing may stay in effect.
    Close,
}

/// Decides what to do with an update.
pub(crate) fn plan(update: &ConfigUpdate, has_config: bool) -> Plan {
    match &update.sandbox_config {
        Some(config) if !config.configuration_admitted => {
            if has_config && config.policy_validation_failure_mode == RETAIN { Plan::Retain } else { Plan::Close }
        }
        _ => Plan::Install,
    }
}

/// How an update ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Installed,
    Duplicate,
    Stale,
    /// Not admitted by the server itself.
    Retained,
    Closed,
    /// It could not be put into effect now.
    Failed {
        message: String,
        has_config: bool,
    },
    /// As a script says.
    Scripted(Answer),
}

/// The answer to an update that ended so.
pub(crate) fn answer(update: &ConfigUpdate, ending: &Ending, instance_id: &str) -> ConfigUpdateResult {
    use ConfigApplyOutcome as Outcome;
    let config = update.sandbox_config.as_ref();
    let failure = |code: &str, message: &str, retryable| {
        Some(ConfigApplyFailure { code: code.to_owned(), message: message.to_owned(), retryable })
    };
    let refused = || failure("CONFIGURATION_INVALID", config.map_or("", |config| &config.configuration_error), false);
    let (outcome, failure) = match ending {
        Ending::Installed => (Outcome::Applied, None),
        Ending::Duplicate => (Outcome::IgnoredDuplicate, None),
        Ending::Stale => (Outcome::IgnoredStale, None),
        Ending::Retained => (Outcome::FailedRetainedLastKnownGood, refused()),
        Ending::Closed => (Outcome::FailedClosed, refused()),
        Ending::Failed { message, has_config } => {
            let outcome = if *has_config { Outcome::FailedRetainedLastKnownGood } else { Outcome::FailedClosed };
            (outcome, failure("STORE_FAILED", message, true))
        }
        Ending::Scripted(answer) => {
            let plain = answer.code.is_empty() && answer.message.is_empty() && !answer.retryable;
            (answer.outcome, if plain { None } else { failure(&answer.code, &answer.message, answer.retryable) })
        }
    };
    let error = failure.as_ref().map_or("", |failure| failure.message.as_str());
    let verdict = config.and_then(|config| verdict(config, outcome, failure.as_ref().is_some_and(|f| f.retryable)));
    let admission = config.zip(verdict).map(|(config, state)| admission(config, state, error, instance_id));
    let policy_load = config
        .zip(verdict)
        .filter(|(config, _)| config.version > 0 && config.policy_source() != PolicySource::Global)
        .map(|(config, state)| PolicyLoadResult {
            version: config.version,
            loaded: state == ConfigurationAdmissionState::Accepted,
            error: error.to_owned(),
        });
    ConfigUpdateResult { update_id: update.update_id.clone(), outcome: outcome.into(), failure, admission, policy_load }
}

/// The verdict on the configuration, if the outcome is one: not while another attempt may turn out differently, nor
/// where the server has no policy to judge.
fn verdict(
    config: &SandboxConfigSnapshot,
    outcome: ConfigApplyOutcome,
    retryable: bool,
) -> Option<ConfigurationAdmissionState> {
    use ConfigApplyOutcome as Outcome;
    match outcome {
        Outcome::Applied | Outcome::IgnoredDuplicate => Some(ConfigurationAdmissionState::Accepted),
        Outcome::Degraded | Outcome::FailedClosed | Outcome::FailedRetainedLastKnownGood
            if !retryable && config.policy.is_some() =>
        {
            Some(ConfigurationAdmissionState::Rejected)
        }
        _ => None,
    }
}

fn admission(
    config: &SandboxConfigSnapshot,
    state: ConfigurationAdmissionState,
    error: &str,
    instance_id: &str,
) -> SandboxConfigurationAdmission {
    SandboxConfigurationAdmission {
        instance_id: instance_id.to_owned(),
        state: state.into(),
        policy_version: config.version,
        policy_hash: config.policy_hash.clone(),
        config_revision: config.config_revision,
        provider_env_revision: config.provider_env_revision,
        error: error.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::sandbox::SandboxPolicy;

    use super::*;

    fn update(admitted: bool, mode: &str) -> ConfigUpdate {
        let config = SandboxConfigSnapshot {
            policy: Some(SandboxPolicy::default()),
            version: 4,
            configuration_admitted: admitted,
            configuration_error: if admitted { String::new() } else { "two endpoints clash".into() },
            policy_validation_failure_mode: mode.into(),
            policy_source: PolicySource::Sandbox.into(),
            ..Default::default()
        };
        ConfigUpdate { update_id: "u".into(), sandbox_config: Some(config), provider_environment: None }
    }

    #[test]
    fn what_is_not_admitted_is_not_installed() {
        assert_eq!(plan(&update(true, ""), true), Plan::Install);
        assert_eq!(plan(&update(false, RETAIN), true), Plan::Retain);
        assert_eq!(plan(&update(false, RETAIN), false), Plan::Close);
        assert_eq!(plan(&update(false, "fail_closed"), true), Plan::Close);
        assert_eq!(plan(&update(false, "who knows"), true), Plan::Close);
        assert_eq!(plan(&ConfigUpdate::default(), true), Plan::Install);
    }

    #[test]
    fn an_installed_configuration_is_accepted_and_its_policy_loaded() {
        for ending in [Ending::Installed, Ending::Duplicate] {
            let answer = answer(&update(true, ""), &ending, "i");
            let admission = answer.admission.unwrap();
            assert_eq!(admission.state(), ConfigurationAdmissionState::Accepted);
            assert_eq!((admission.instance_id.as_str(), admission.policy_version), ("i", 4));
            let load = answer.policy_load.unwrap();
            assert_eq!((load.version, load.loaded, answer.update_id.as_str()), (4, true, "u"));
        }
    }

    #[test]
    fn an_invalid_configuration_is_rejected_with_the_servers_reason() {
        let answer = answer(&update(false, ""), &Ending::Closed, "i");
        assert_eq!(answer.outcome(), ConfigApplyOutcome::FailedClosed);
        assert_eq!(answer.failure.unwrap().message, "two endpoints clash");
        assert_eq!(answer.admission.unwrap().state(), ConfigurationAdmissionState::Rejected);
        assert!(!answer.policy_load.unwrap().loaded);
    }

    #[test]
    fn a_failure_that_may_pass_is_no_verdict() {
        let failed = Ending::Failed { message: "disk full".into(), has_config: true };
        let answer = answer(&update(true, ""), &failed, "i");
        assert_eq!(answer.outcome(), ConfigApplyOutcome::FailedRetainedLastKnownGood);
        assert!(answer.failure.unwrap().retryable);
        assert_eq!((answer.admission, answer.policy_load), (None, None));
    }

    #[test]
    fn the_absence_of_a_policy_is_no_verdict() {
        let mut update = update(false, "");
        if let Some(config) = &mut update.sandbox_config {
            config.policy = None;
            config.version = 0;
        }
        let answer = answer(&update, &Ending::Closed, "i");
        assert_eq!((answer.admission, answer.policy_load), (None, None));
    }

    #[test]
    fn an_environment_alone_carries_no_verdict() {
        let update = ConfigUpdate { provider_environment: Some(Default::default()), ..Default::default() };
        let answer = answer(&update, &Ending::Installed, "i");
        assert_eq!((answer.admission, answer.policy_load), (None, None));
    }
}
