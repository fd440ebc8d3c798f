//! Database and bucket of the model. Between them stands the builder's contract, which config-snapshot's own model shows:
//! an entry shows the database as it is or later, accepted entries rise, equal content stays, and after a loss an equal
//! entry is written anew.

use prost::Message as _;
use roadstead_proto::api::sandbox::{PolicySource, SandboxConfigSnapshot};
use roadstead_proto::internal::SnapshotEntry;

/// What one sandbox is to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) config: Config,
    pub(super) environment: u8,
}

/// The half that comes with counters. Few settings, so that contents come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) version: u8,
    pub(super) other: u8,
    pub(super) admitted: bool,
}

impl Config {
    pub(super) fn message(self) -> SandboxConfigSnapshot {
        SandboxConfigSnapshot {
            version: self.version.into(),
            config_revision: self.other.into(),
            configuration_admitted: self.admitted,
            policy_source: PolicySource::Sandbox.into(),
            ..Default::default()
        }
    }

    pub(super) fn read(message: &SandboxConfigSnapshot) -> Self {
        let (version, other) = (message.version as u8, message.config_revision as u8);
        Self { version, other, admitted: message.configuration_admitted }
    }

    pub(super) fn digest(self) -> [u8; 32] {
        let mut digest = [1; 32];
        digest[..3].copy_from_slice(&[self.version, self.other, self.admitted.into()]);
        digest
    }
}

/// The digest of an environment.
pub(super) fn environment_digest(environment: u8) -> [u8; 32] {
    [environment; 32]
}

#[derive(Clone, Debug, Default)]
struct State {
    content: Content,
    sequence: u64,
}

#[derive(Debug, Default)]
pub(super) struct Store {
    state: State,
    backup: State,
    epoch: u64,
    /// Every content there was, in order.
    pub(super) history: Vec<Content>,
    standing: Option<SnapshotEntry>,
    saved: Option<SnapshotEntry>,
    /// What was lost has not been swept after yet.
    lost: bool,
}

impl Store {
    pub(super) fn new() -> Self {
        let content = Content { config: Config { admitted: true, ..Config::default() }, environment: 0 };
        let state = State { content, sequence: 0 };
        Self { backup: state.clone(), state, history: vec![content], ..Self::default() }
    }

    pub(super) fn content(&self) -> Content {
        self.state.content
    }

    pub(super) fn commit(&mut self, content: Content) {
        self.state.content = content;
        self.history.push(content);
    }

    pub(super) fn back_up(&mut self) {
        self.backup = self.state.clone();
    }

    /// Puts the backup back, and recovers: the epoch rises.
    pub(super) fn restore(&mut self) {
        self.state = self.backup.clone();
        self.epoch += 1;
        self.lost = true;
        self.history.push(self.state.content);
    }

    pub(super) fn save(&mut self) {
        self.saved = self.standing.clone();
    }

    pub(super) fn wipe(&mut self) {
        (self.standing, self.saved, self.lost) = (None, None, true);
    }

    pub(super) fn roll_back(&mut self) {
        (self.standing, self.lost) = (self.saved.clone(), true);
    }

    /// What stands, as the bridge reads it.
    pub(super) fn standing(&self) -> Option<SnapshotEntry> {
        self.standing.clone()
    }

    /// One build: what stands after it, and what the feed tells of it.
    pub(super) fn build(&mut self, at_least: u64) -> (SnapshotEntry, Option<SnapshotEntry>) {
        self.state.sequence += 1;
        let entry = self.entry();
        let same = self.standing.as_ref().filter(|standing| {
            standing.epoch == self.epoch
                && standing.sequence >= at_least
                && standing.config_digest == entry.config_digest
                && standing.environment_digest == entry.environment_digest
        });
        if let Some(same) = same {
            return (same.clone(), None);
        }
        self.standing = Some(entry.clone());
        (entry.clone(), Some(entry))
    }

    /// The sweep finds what was lost.
    pub(super) fn sweep(&mut self) -> Option<SnapshotEntry> {
        let at_least = if std::mem::take(&mut self.lost) { self.state.sequence + 1 } else { 0 };
        self.build(at_least).1
    }

    fn entry(&self) -> SnapshotEntry {
        let Content { config, environment } = self.state.content;
        let entry = SnapshotEntry {
            epoch: self.epoch,
            sequence: self.state.sequence,
            config: Some(config.message()),
            environment: vec![environment].into(),
            config_digest: config.digest().to_vec().into(),
            environment_digest: environment_digest(environment).to_vec().into(),
            ..Default::default()
        };
        // As it comes from the wire.
        SnapshotEntry::decode(entry.encode_to_vec().as_slice()).unwrap_or_default()
    }
}
