//! What a supervisor says of its sandbox's providers: what is in effect, and whether both halves belong together. Pure.

use roadstead_proto::api::v1::{ProviderReadinessObservation, ProviderReadinessReason};

use crate::observed::{ConfigSeen, EnvironmentSeen};

/// What one session has said so far.
#[derive(Debug)]
pub(crate) struct Said {
    session_id: String,
    instance_id: String,
    newest: ProviderReadinessObservation,
}

impl Said {
    pub(crate) fn nothing(session_id: &str, instance_id: String) -> Self {
        Self { session_id: session_id.to_owned(), instance_id, newest: ProviderReadinessObservation::default() }
    }

    /// What to say now. None: no environment is in effect yet, so there is nothing to say.
    pub(crate) fn next(
        &mut self,
        config: Option<&ConfigSeen>,
        environment: Option<&EnvironmentSeen>,
    ) -> Option<ProviderReadinessObservation> {
        let observation = self.observe(config, environment)?;
        self.newest = ProviderReadinessObservation { sequence: self.newest.sequence + 1, ..observation };
        Some(self.newest.clone())
    }

    /// Whether it has said what it would say now.
    pub(crate) fn is_current(&self, config: Option<&ConfigSeen>, environment: Option<&EnvironmentSeen>) -> bool {
        let now = self.observe(config, environment);
        now.is_none_or(|now| ProviderReadinessObservation { sequence: self.newest.sequence, ..now } == self.newest)
    }

    fn observe(
        &self,
        config: Option<&ConfigSeen>,
        environment: Option<&EnvironmentSeen>,
    ) -> Option<ProviderReadinessObservation> {
        let environment = environment?;
        let agrees = config.is_some_and(|config| {
            config.provider_env_revision == environment.provider_env_revision
                && config.policy_hash == environment.policy_hash
        });
        let reason = match config {
            None => ProviderReadinessReason::WaitingForPolicy,
            Some(_) if !agrees => ProviderReadinessReason::SnapshotMismatch,
            Some(_) => ProviderReadinessReason::Unspecified,
        };
        Some(ProviderReadinessObservation {
            session_id: self.session_id.clone(),
            sequence: 0,
            attachment_epoch: environment.provider_attachment_epoch.clone(),
            provider_env_revision: environment.provider_env_revision,
            config_revision: config.map(|config| config.config_revision).unwrap_or_default(),
            policy_hash: config.map(|config| config.policy_hash.clone()).unwrap_or_default(),
            credentials_installed: true,
            policy_active: agrees,
            // This client launches nothing: whatever is launched beside it finds what is in effect.
            launch_environment_installed: true,
            process_instance_id: self.instance_id.clone(),
            reason: reason.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::sandbox::SandboxConfigSnapshot;
    use roadstead_proto::api::v1::ProviderEnvironmentSnapshot;

    use super::*;

    fn config(revision: u64) -> ConfigSeen {
        ConfigSeen::of(&SandboxConfigSnapshot { provider_env_revision: revision, ..Default::default() })
    }

    fn environment(revision: u64) -> EnvironmentSeen {
        EnvironmentSeen::of(&ProviderEnvironmentSnapshot { provider_env_revision: revision, ..Default::default() })
    }

    #[test]
    fn sequences_rise_and_only_halves_that_agree_are_active() {
        let mut said = Said::nothing("s", "i".into());
        assert_eq!(said.next(Some(&config(1)), None), None);
        let first = said.next(Some(&config(1)), Some(&environment(1))).unwrap();
        assert_eq!(
            (first.sequence, first.policy_active, first.reason()),
            (1, true, ProviderReadinessReason::Unspecified)
        );
        assert!(said.is_current(Some(&config(1)), Some(&environment(1))));
        assert!(!said.is_current(Some(&config(1)), Some(&environment(2))));
        let second = said.next(Some(&config(1)), Some(&environment(2))).unwrap();
        assert_eq!((second.sequence, second.reason()), (2, ProviderReadinessReason::SnapshotMismatch));
        assert!(!second.policy_active);
        let without = said.next(None, Some(&environment(2))).unwrap();
        assert_eq!((without.sequence, without.reason()), (3, ProviderReadinessReason::WaitingForPolicy));
    }
}
