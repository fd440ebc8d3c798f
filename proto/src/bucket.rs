//! Key-value buckets, their keys and their republished feeds (D7).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use uuid::Uuid;

use crate::subject::{Malformed, uuid};

/// A bucket. Each has one writing role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bucket {
    /// `<sandbox id>` → `internal::SnapshotEntry`; written by config-snapshot.
    Snapshots,
    /// `<workspace id>.<sandbox id>` → `internal::SandboxEntry`; written by watch.
    Sandboxes,
    /// `<workspace id>` → `internal::RightsEntry`; written by watch.
    Rights,
}

impl Bucket {
    /// All buckets.
    pub const ALL: [Self; 3] = [Self::Snapshots, Self::Sandboxes, Self::Rights];

    /// The bucket's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Snapshots => "snapshots",
            Self::Sandboxes => "sandboxes",
            Self::Rights => "rights",
        }
    }

    /// Name of the stream behind the bucket.
    #[must_use]
    pub fn stream(self) -> String {
        format!("KV_{}", self.name())
    }

    /// Largest value in bytes.
    #[must_use]
    pub const fn max_value(self) -> i32 {
        match self {
            // Configuration and environment of a sandbox at the sum of their budgets, and headers.
            Self::Snapshots => 3 * 1024 * 1024 + 64 * 1024,
            Self::Sandboxes | Self::Rights => 1024 * 1024,
        }
    }

    /// How long the last word on a deleted key stays readable.
    pub const MARKER_AGE: Duration = Duration::from_secs(3600);

    /// Subject on which the broker repeats what it stored under `key`.
    #[must_use]
    pub fn feed(self, key: &str) -> String {
        format!("roadstead.feed.{}.{key}", self.name())
    }

    /// Every subject of the feed.
    #[must_use]
    pub fn whole_feed(self) -> String {
        self.feed(">")
    }

    /// The key, from a subject of the feed.
    pub fn key_of_feed(self, subject: &str) -> Result<&str, Malformed> {
        let rest = subject.strip_prefix("roadstead.feed.").ok_or(Malformed)?;
        rest.strip_prefix(self.name()).and_then(|rest| rest.strip_prefix('.')).ok_or(Malformed)
    }
}

/// A key of the bucket `sandboxes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SandboxKey {
    Sandbox {
        workspace_id: Uuid,
        sandbox_id: Uuid,
    },
    /// Written every second by the watch replica of that id, so that silence can be told from quiet.
    Beat(Uuid),
}

impl fmt::Display for SandboxKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sandbox { workspace_id, sandbox_id } => write!(formatter, "{workspace_id}.{sandbox_id}"),
            Self::Beat(replica) => write!(formatter, "beat.{replica}"),
        }
    }
}

impl FromStr for SandboxKey {
    type Err = Malformed;

    fn from_str(key: &str) -> Result<Self, Malformed> {
        match key.split_once('.').ok_or(Malformed)? {
            ("beat", replica) => Ok(Self::Beat(uuid(replica)?)),
            (workspace_id, sandbox_id) => {
                Ok(Self::Sandbox { workspace_id: uuid(workspace_id)?, sandbox_id: uuid(sandbox_id)? })
            }
        }
    }
}

/// A key of the bucket `rights`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RightsKey {
    Workspace(Uuid),
    Beat(Uuid),
}

impl fmt::Display for RightsKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workspace(id) => write!(formatter, "{id}"),
            Self::Beat(replica) => write!(formatter, "beat.{replica}"),
        }
    }
}

impl FromStr for RightsKey {
    type Err = Malformed;

    fn from_str(key: &str) -> Result<Self, Malformed> {
        match key.strip_prefix("beat.") {
            Some(replica) => uuid(replica).map(Self::Beat),
            None => uuid(key).map(Self::Workspace),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_survive_a_round_trip(a in any::<u128>(), b in any::<u128>()) {
            let (a, b) = (Uuid::from_u128(a), Uuid::from_u128(b));
            for key in [SandboxKey::Sandbox { workspace_id: a, sandbox_id: b }, SandboxKey::Beat(a)] {
                prop_assert_eq!(key.to_string().parse::<SandboxKey>(), Ok(key));
            }
            for key in [RightsKey::Workspace(a), RightsKey::Beat(b)] {
                prop_assert_eq!(key.to_string().parse::<RightsKey>(), Ok(key));
            }
        }

        #[test]
        fn other_text_is_refused(text in "[a-z0-9.-]{0,80}") {
            prop_assert!(text.parse::<SandboxKey>().is_err());
            prop_assert!(text.parse::<RightsKey>().is_err());
        }

        #[test]
        fn a_feed_subject_gives_its_key_back(key in "[a-z0-9.-]{1,80}") {
            for bucket in Bucket::ALL {
                let subject = bucket.feed(&key);
                prop_assert_eq!(bucket.key_of_feed(&subject), Ok(key.as_str()));
            }
        }
    }

    #[test]
    fn feeds_of_other_buckets_are_refused() {
        assert_eq!(Bucket::Rights.key_of_feed(&Bucket::Sandboxes.feed("x")), Err(Malformed));
    }
}
