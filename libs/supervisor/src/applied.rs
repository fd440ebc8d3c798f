//! What has been applied, and whether an update is news. Pure.
//!
//! Within a session the server's order decides. At the beginning of another session, perhaps with another bridge, the
//! first update may be older than what is in effect: then it is called stale, once; if the server insists, it is right
//! (its database may have been restored). What was asked for is right in any case: it was read after the question.

use roadstead_proto::api::sandbox::{PolicySource, SandboxConfigSnapshot};
use roadstead_proto::api::v1::ConfigUpdate;
use sha2::{Digest as _, Sha256};

use crate::verdict::{Ending, Plan, plan};

/// What is in effect.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    config: Option<Config>,
    environment: Option<[u8; 32]>,
    /// Whether the server's order decides by now.
    server_decides: bool,
}

#[derive(Clone, Copy, Debug)]
struct Config {
    digest: [u8; 32],
    source: PolicySource,
    version: u32,
    global_version: u32,
    settings: u64,
}

/// What an update is, compared with what is in effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judgement {
    New,
    /// All of it is in effect already.
    Duplicate,
    /// Older than what is in effect.
    Stale,
}

impl Applied {
    /// Another session begins.
    pub(crate) fn begin_session(&mut self) {
        self.server_decides = false;
    }

    /// What comes next was read later than all that is in effect: it is right.
    pub(crate) const fn read_later(&mut self) {
        self.server_decides = true;
    }

    /// What is to be done with an update, before it is [done](Self::done).
    ///
    /// # Errors
    ///
    /// How it ends with nothing to be done.
    pub(crate) fn plan(&mut self, update: &ConfigUpdate) -> Result<Plan, Ending> {
        match self.judge(update) {
            Judgement::Stale => Err(Ending::Stale),
            Judgement::Duplicate => Err(Ending::Duplicate),
            Judgement::New => Ok(plan(update, self.has_config())),
        }
    }

    /// What was planned for an update is in effect.
    pub(crate) fn done(&mut self, plan: Plan, update: &ConfigUpdate) -> Ending {
        match plan {
            Plan::Install => {
                self.installed(update);
                Ending::Installed
            }
            Plan::Retain => Ending::Retained,
            Plan::Close => {
                self.config = None;
                Ending::Closed
            }
        }
    }

    /// Compares an update with what is in effect.
    fn judge(&mut self, update: &ConfigUpdate) -> Judgement {
        let older = match (&self.config, &update.sandbox_config) {
            (Some(applied), Some(offered)) => Config::of(offered).is_older_than(applied),
            _ => false,
        };
        if older && !self.server_decides {
            self.server_decides = true;
            return Judgement::Stale;
        }
        self.server_decides |= update.sandbox_config.is_some();
        if self.has(update) { Judgement::Duplicate } else { Judgement::New }
    }

    /// Whether all of an update is in effect.
    pub(crate) fn has(&self, update: &ConfigUpdate) -> bool {
        let config = update.sandbox_config.as_ref();
        let environment = update.provider_environment.as_ref();
        config.is_none_or(|config| self.config.is_some_and(|applied| applied.digest == digest(config)))
            && environment.is_none_or(|environment| self.environment == Some(digest(environment)))
    }

    fn installed(&mut self, update: &ConfigUpdate) {
        if let Some(config) = &update.sandbox_config {
            self.config = Some(Config::of(config));
        }
        if let Some(environment) = &update.provider_environment {
            self.environment = Some(digest(environment));
        }
    }

    /// Whether any configuration is in effect.
    pub(crate) const fn has_config(&self) -> bool {
        self.config.is_some()
    }
}

impl Config {
    fn of(config: &SandboxConfigSnapshot) -> Self {
        Self {
            digest: digest(config),
            source: config.policy_source(),
            version: config.version,
            global_version: config.global_policy_version,
            settings: config.settings_revision,
        }
    }

    /// Whether some counter is lower and none is higher. The revisions tell nothing: they are compared for equality only.
    fn is_older_than(&self, other: &Self) -> bool {
        let mut pairs = vec![(self.settings, other.settings)];
        if self.source == other.source {
            pairs.push(match self.source {
                PolicySource::Global => (self.global_version.into(), other.global_version.into()),
                _ => (self.version.into(), other.version.into()),
            });
        }
        pairs.iter().any(|(ours, theirs)| ours < theirs) && pairs.iter().all(|(ours, theirs)| ours <= theirs)
    }
}

pub(crate) fn digest(message: &impl prost::Message) -> [u8; 32] {
    Sha256::digest(message.encode_to_vec()).into()
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::v1::ProviderEnvironmentSnapshot;

    use super::*;

    fn update(version: u32, settings: u64, environment: Option<u64>) -> ConfigUpdate {
        ConfigUpdate {
            sandbox_config: Some(SandboxConfigSnapshot {
                version,
                settings_revision: settings,
                policy_source: PolicySource::Sandbox.into(),
                ..Default::default()
            }),
            provider_environment: environment
                .map(|revision| ProviderEnvironmentSnapshot { provider_env_revision: revision, ..Default::default() }),
            ..Default::default()
        }
    }

    fn having(applied_update: &ConfigUpdate) -> Applied {
        let mut applied = Applied::default();
        assert_eq!(applied.judge(applied_update), Judgement::New);
        applied.installed(applied_update);
        applied.begin_session();
        applied
    }

    #[test]
    fn equal_content_is_a_duplicate_and_half_of_it_too() {
        let mut applied = having(&update(3, 2, Some(9)));
        assert_eq!(applied.judge(&update(3, 2, Some(9))), Judgement::Duplicate);
        assert_eq!(applied.judge(&update(3, 2, None)), Judgement::Duplicate);
        assert_eq!(applied.judge(&update(3, 2, Some(8))), Judgement::New);
    }

    #[test]
    fn older_content_in_another_session_is_stale_once() {
        let mut applied = having(&update(3, 2, None));
        assert_eq!(applied.judge(&update(2, 2, None)), Judgement::Stale);
        assert_eq!(applied.judge(&update(2, 2, None)), Judgement::New, "the server insists");
    }

    #[test]
    fn within_a_session_the_servers_order_decides() {
        let mut applied = having(&update(3, 2, None));
        assert_eq!(applied.judge(&update(4, 2, None)), Judgement::New);
        assert_eq!(applied.judge(&update(2, 2, None)), Judgement::New);
    }

    #[test]
    fn what_was_asked_for_is_right_and_what_the_next_session_pushes_may_be_older() {
        let mut applied = having(&update(3, 2, None));
        applied.read_later();
        assert_eq!(applied.judge(&update(2, 2, None)), Judgement::New, "the database was restored");
        let mut applied = having(&update(3, 2, None));
        applied.read_later();
        assert_eq!(applied.judge(&update(4, 2, None)), Judgement::New);
        applied.installed(&update(4, 2, None));
        applied.begin_session();
        assert_eq!(applied.judge(&update(3, 2, None)), Judgement::Stale);
        assert_eq!(applied.judge(&update(4, 2, None)), Judgement::Duplicate);
    }

    #[test]
    fn counters_that_disagree_or_do_not_compare_are_not_older() {
        assert_eq!(having(&update(3, 2, None)).judge(&update(2, 3, None)), Judgement::New);
        let mut global = update(1, 2, None);
        if let Some(config) = &mut global.sandbox_config {
            config.policy_source = PolicySource::Global.into();
        }
        assert_eq!(having(&update(3, 2, None)).judge(&global), Judgement::New);
    }
}
