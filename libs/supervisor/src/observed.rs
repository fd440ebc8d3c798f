//! What a supervisor saw, for those who watch it: tests, benchmarks, the demo. Nothing secret is in it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prost::Message as _;
use roadstead_proto::api::sandbox::{PolicySource, SandboxConfigSnapshot};
use roadstead_proto::api::v1::{ConfigApplyOutcome, ConfigUpdate, ProviderEnvironmentSnapshot};
use tokio::sync::watch;

/// Something that a supervisor saw or did.
#[derive(Clone, Debug)]
pub enum Observation {
    /// A session was accepted.
    Accepted { session_id: String, pushes: bool, at: Instant },
    /// An update arrived, or what was asked for is new.
    Received(Box<Frame>),
    /// An update was answered, or what was asked for came to this.
    Answered { session_id: String, update_id: String, outcome: ConfigApplyOutcome, at: Instant },
    /// The default policy was accepted by the server, as this version.
    PolicySynced { version: u32, at: Instant },
    /// The token was refreshed.
    TokenRefreshed { at: Instant },
    /// A session, or an attempt to have one, ended.
    Ended { session_id: Option<String>, reason: String, at: Instant },
}

/// An update as it arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    pub session_id: String,
    /// Place in the session, from 1.
    pub order: u64,
    pub update_id: String,
    /// Whether it came with the acceptance of the session.
    pub bootstrap: bool,
    /// Whether it was asked for. Then it has no `update_id`, and before the first session no `session_id`.
    pub polled: bool,
    pub config: Option<ConfigSeen>,
    pub environment: Option<EnvironmentSeen>,
    /// Encoded size.
    pub bytes: usize,
    pub at: Instant,
}

/// What tells one configuration from another.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigSeen {
    pub config_revision: u64,
    pub policy_version: u32,
    pub policy_hash: String,
    pub source: PolicySource,
    pub global_policy_version: u32,
    pub settings_revision: u64,
    pub provider_env_revision: u64,
    pub provider_attachment_epoch: String,
    pub admitted: bool,
    pub has_policy: bool,
    pub error: String,
}

/// What tells one environment from another.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvironmentSeen {
    pub provider_env_revision: u64,
    pub policy_hash: String,
    pub provider_attachment_epoch: String,
    /// Names of the values, not the values.
    pub names: Vec<String>,
}

impl Frame {
    pub(crate) fn of(update: &ConfigUpdate, session_id: &str, order: u64) -> Self {
        Self {
            session_id: session_id.to_owned(),
            order,
            update_id: update.update_id.clone(),
            bootstrap: false,
            polled: false,
            config: update.sandbox_config.as_ref().map(ConfigSeen::of),
            environment: update.provider_environment.as_ref().map(EnvironmentSeen::of),
            bytes: update.encoded_len(),
            at: Instant::now(),
        }
    }
}

impl ConfigSeen {
    pub(crate) fn of(config: &SandboxConfigSnapshot) -> Self {
        Self {
            config_revision: config.config_revision,
            policy_version: config.version,
            policy_hash: config.policy_hash.clone(),
            source: config.policy_source(),
            global_policy_version: config.global_policy_version,
            settings_revision: config.settings_revision,
            provider_env_revision: config.provider_env_revision,
            provider_attachment_epoch: config.provider_attachment_epoch.clone(),
            admitted: config.configuration_admitted,
            has_policy: config.policy.is_some(),
            error: config.configuration_error.clone(),
        }
    }
}

impl EnvironmentSeen {
    pub(crate) fn of(environment: &ProviderEnvironmentSnapshot) -> Self {
        Self {
            provider_env_revision: environment.provider_env_revision,
            policy_hash: environment.policy_hash.clone(),
            provider_attachment_epoch: environment.provider_attachment_epoch.clone(),
            names: environment.values.iter().map(|value| value.name.clone()).collect(),
        }
    }

    /// Whether it is the other half of this configuration.
    pub(crate) fn belongs_to(&self, config: &SandboxConfigSnapshot) -> bool {
        let Self { provider_env_revision, policy_hash, provider_attachment_epoch, names: _ } = self;
        *provider_env_revision == config.provider_env_revision
            && *policy_hash == config.policy_hash
            && *provider_attachment_epoch == config.provider_attachment_epoch
    }
}

/// Is told everything a supervisor sees, in order. It is called in the supervisor's own task: it must be quick.
#[derive(Clone)]
pub struct Observer(Arc<dyn Fn(Observation) + Send + Sync>);

impl Observer {
    /// Calls `observe` for each observation.
    pub fn new(observe: impl Fn(Observation) + Send + Sync + 'static) -> Self {
        Self(Arc::new(observe))
    }

    pub(crate) fn tell(&self, observation: Observation) {
        (self.0)(observation);
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Observer")
    }
}

/// Keeps the newest observations.
#[derive(Clone, Debug)]
pub struct Recorder {
    limit: usize,
    kept: Arc<Mutex<Vec<Observation>>>,
    /// How many there were; those beyond the limit are no longer kept.
    count: watch::Sender<u64>,
}

impl Recorder {
    /// Keeps the newest `limit` observations.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, kept: Arc::default(), count: watch::Sender::new(0) }
    }

    /// What to give to a supervisor.
    #[must_use]
    pub fn observer(&self) -> Observer {
        let recorder = self.clone();
        Observer::new(move |observation| recorder.keep(observation))
    }

    /// What is kept, oldest first.
    #[must_use]
    pub fn observations(&self) -> Vec<Observation> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The updates among it.
    #[must_use]
    pub fn frames(&self) -> Vec<Frame> {
        let frame = |observation| match observation {
            Observation::Received(frame) => Some(*frame),
            _ => None,
        };
        self.observations().into_iter().filter_map(frame).collect()
    }

    /// Waits until `found` makes something of what is kept; None if that takes longer than `patience`. What is kept is
    /// locked meanwhile: `found` looks at its argument and does not ask the recorder.
    pub async fn wait_for<T>(
        &self,
        patience: Duration,
        mut found: impl FnMut(&[Observation]) -> Option<T>,
    ) -> Option<T> {
        let mut count = self.count.subscribe();
        let search = async {
            loop {
                count.mark_unchanged();
                if let Some(found) = found(&self.kept.lock().unwrap_or_else(PoisonError::into_inner)) {
                    return Some(found);
                }
                count.changed().await.ok()?;
            }
        };
        tokio::time::timeout(patience, search).await.ok().flatten()
    }

    fn keep(&self, observation: Observation) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == self.limit {
            kept.remove(0);
        }
        kept.push(observation);
        drop(kept);
        self.count.send_modify(|count| *count += 1);
    }
}
