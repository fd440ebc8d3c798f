//! A composed configuration on its way into the bucket: encoded, tagged, and its environment encrypted.

use std::fmt;

use prost::Message as _;
use roadstead_policy::compose::Composed;
use roadstead_proto::api::sandbox::SandboxConfigSnapshot;
use roadstead_proto::internal::SnapshotEntry;
use roadstead_proto::sealing::CipherKeys;
use roadstead_service_kit::hmac_keys::HmacKeys;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::entry::Version;

/// The keys that snapshots need.
#[derive(Debug)]
pub(crate) struct SnapshotKeys {
    /// Encrypts environments; the bridge opens them. The context is the sandbox's id, as 16 bytes.
    pub(crate) cipher: CipherKeys,
    /// Tags environments, so that equal ones can be told without showing them.
    pub(crate) digests: HmacKeys,
}

/// A build, not stored yet.
pub(crate) struct Snapshot {
    config: SandboxConfigSnapshot,
    config_digest: [u8; 32],
    environment: Zeroizing<Vec<u8>>,
    environment_digest: [u8; 32],
}

/// Where and when a snapshot becomes an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) epoch: u64,
    pub(crate) sequence: u64,
    pub(crate) workspace_id: Uuid,
    pub(crate) sandbox_id: Uuid,
    pub(crate) traceparent: &'a str,
}

impl Snapshot {
    /// Encodes and tags both halves.
    #[must_use]
    pub(crate) fn new(composed: Composed, keys: &SnapshotKeys) -> Self {
        let environment = Zeroizing::new(composed.environment.encode_to_vec());
        Self {
            config_digest: Sha256::digest(composed.config.encode_to_vec()).into(),
            environment_digest: keys.digests.tag(&environment),
            config: composed.config,
            environment,
        }
    }

    /// What the build is compared by.
    #[must_use]
    pub(crate) fn version(&self, epoch: u64, sequence: u64, at_least: u64) -> Version<'_> {
        Version {
            epoch,
            sequence,
            config_digest: &self.config_digest,
            environment_digest: &self.environment_digest,
            at_least,
        }
    }

    /// Whether the configuration composes.
    #[must_use]
    pub(crate) fn is_broken(&self) -> bool {
        !self.config.configuration_error.is_empty()
    }

    /// The entry.
    #[must_use]
    pub(crate) fn into_entry(self, keys: &SnapshotKeys, place: Place<'_>) -> SnapshotEntry {
        SnapshotEntry {
            epoch: place.epoch,
            sequence: place.sequence,
            workspace_id: place.workspace_id.to_string(),
            config: Some(self.config),
            environment: keys.cipher.encrypt(place.sandbox_id.as_bytes(), &self.environment).into(),
            config_digest: self.config_digest.to_vec().into(),
            environment_digest: self.environment_digest.to_vec().into(),
            traceparent: place.traceparent.to_owned(),
        }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Snapshot")
            .field("config_revision", &self.config.config_revision)
            .finish_non_exhaustive()
    }
}
