//! The deployment's keyring: the master keys that every other secret is derived from.
//!
//! Rotation goes in steps, so that nothing sealed or signed in between is refused: [`Keyring::stage`] announces the
//! next key, all roles get new exports; [`Keyring::rotate`] makes it active, all roles get new exports; when nothing
//! made with the old key is left, [`Keyring::retire`] drops it.

mod export;
mod other_exports;

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::TryRngCore as _;
use rand::rngs::OsRng;
use roadstead_proto::sealing::SecretKey;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use other_exports::{BrokerKeys, OwnerKeys};

use crate::key_file::{self, KeyFileError};
use crate::role_keys::key_set::{key_id, key_text};
use crate::whole_file::Existing;

const FORMAT: u32 = 1;
/// More old keys than any rotation needs.
const MAX_OLD_KEYS: usize = 16;

/// The master keys of one deployment. Only who sets the deployment up needs it; roles get exports.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keyring {
    format: u32,
    deployment: Uuid,
    /// Seals, signs and encrypts.
    active: MasterKey,
    /// Announced: opens and verifies everywhere, makes nothing yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<MasterKey>,
    /// Open and verify what they made before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    old: Vec<MasterKey>,
}

/// One master key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MasterKey {
    #[serde(deserialize_with = "key_id")]
    id: String,
    #[serde(with = "key_text")]
    secret: SecretKey,
    /// Seconds since 1970.
    created: u64,
}

/// What a key is still, or already, used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    Active,
    Next,
    VerifyOnly,
}

/// A key as it may be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    pub id: String,
    pub state: KeyState,
    pub created: SystemTime,
}

/// Why the keyring could not be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    /// The file.
    #[error(transparent)]
    File(#[from] KeyFileError),
    /// The operating system gave no randomness.
    #[error("the operating system gives no random bytes: {0}")]
    NoRandomness(#[source] rand::rand_core::OsError),
    /// A key is announced already.
    #[error("key {0} is announced already; the next step is to rotate")]
    AlreadyStaged(String),
    /// Only a verify-only key can be dropped.
    #[error("no verify-only key has the id {0:?}")]
    NotRetirable(String),
    /// The list is full of old keys.
    #[error("the keyring holds {MAX_OLD_KEYS} old keys; retire some first")]
    Full,
}

impl Keyring {
    /// A new deployment with one key.
    ///
    /// # Errors
    /// [`KeyringError::NoRandomness`].
    pub fn generate(now: SystemTime) -> Result<Self, KeyringError> {
        let active = MasterKey::generate(now)?;
        Ok(Self { format: FORMAT, deployment: Uuid::new_v4(), active, next: None, old: Vec::new() })
    }

    /// Reads the keyring.
    ///
    /// # Errors
    /// Also if others than its owner may read the file, or the keys make no sense together.
    pub fn load(path: &Path) -> Result<Self, KeyringError> {
        let keyring: Self = key_file::read(path)?;
        keyring.check().map_err(|reason| KeyFileError::Invalid { path: path.to_owned(), reason })?;
        Ok(keyring)
    }

    /// Writes a new keyring, mode 0600; never over another one.
    ///
    /// # Errors
    /// [`KeyFileError::Exists`] if there is a file of that name.
    pub fn create(&self, path: &Path) -> Result<(), KeyringError> {
        Ok(key_file::write(path, self, Existing::Keep)?)
    }

    /// Writes a changed keyring over its older form, mode 0600.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn save(&self, path: &Path) -> Result<(), KeyringError> {
        Ok(key_file::write(path, self, Existing::Replace)?)
    }

    /// The deployment's id; never changes.
    #[must_use]
    pub const fn deployment(&self) -> Uuid {
        self.deployment
    }

    /// The keys, the active one first.
    pub fn keys(&self) -> impl Iterator<Item = KeyInfo> {
        self.masters().map(|(state, key)| KeyInfo { id: key.id.clone(), state, created: key.created() })
    }

    /// Announces a new key and returns its id.
    ///
    /// # Errors
    /// [`KeyringError::AlreadyStaged`] if one is announced already.
    pub fn stage(&mut self, now: SystemTime) -> Result<&str, KeyringError> {
        if let Some(next) = &self.next {
            return Err(KeyringError::AlreadyStaged(next.id.clone()));
        }
        Ok(&self.next.insert(MasterKey::generate(now)?).id)
    }

    /// Makes the announced key active and the active one verify-only. Makes one at once if none was announced: then
    /// processes with older exports refuse what the new key makes until they get theirs.
    ///
    /// # Errors
    /// [`KeyringError::Full`] with too many old keys.
    pub fn rotate(&mut self, now: SystemTime) -> Result<(), KeyringError> {
        if self.old.len() >= MAX_OLD_KEYS {
            return Err(KeyringError::Full);
        }
        let next = match self.next.take() {
            Some(next) => next,
            None => MasterKey::generate(now)?,
        };
        self.old.push(std::mem::replace(&mut self.active, next));
        Ok(())
    }

    /// Drops a verify-only key: what it sealed, signed or encrypted never opens again.
    ///
    /// # Errors
    /// [`KeyringError::NotRetirable`] if no verify-only key has that id.
    pub fn retire(&mut self, id: &str) -> Result<(), KeyringError> {
        let found = self.old.iter().position(|key| key.id == id);
        self.old.remove(found.ok_or_else(|| KeyringError::NotRetirable(id.to_owned()))?);
        Ok(())
    }

    /// All master keys, the active one first.
    fn masters(&self) -> impl Iterator<Item = (KeyState, &MasterKey)> {
        let next = self.next.iter().map(|key| (KeyState::Next, key));
        let old = self.old.iter().rev().map(|key| (KeyState::VerifyOnly, key));
        std::iter::once((KeyState::Active, &self.active)).chain(next).chain(old)
    }

    fn check(&self) -> Result<(), String> {
        if self.format != FORMAT {
            return Err(format!("its format is {}, this program knows {FORMAT}", self.format));
        }
        let mut ids: Vec<_> = self.masters().map(|(_, key)| &key.id).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        if ids.len() == count { Ok(()) } else { Err("two keys have the same id".to_owned()) }
    }
}

impl MasterKey {
    fn generate(now: SystemTime) -> Result<Self, KeyringError> {
        let mut secret = [0; 32];
        OsRng.try_fill_bytes(&mut secret).map_err(KeyringError::NoRandomness)?;
        let id = format!("k{}", &Uuid::new_v4().simple().to_string()[..12]);
        let created = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Ok(Self { id, secret: SecretKey::from_bytes(secret), created })
    }

    fn created(&self) -> SystemTime {
        UNIX_EPOCH.checked_add(Duration::from_secs(self.created)).unwrap_or(UNIX_EPOCH)
    }
}

#[cfg(test)]
mod tests;
