//! Admission's end: opens commands, seals answers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use uuid::Uuid;
use x25519_dalek::{PublicKey, StaticSecret};

use super::channel::{Channel, Direction};
use super::recent::Recent;
use super::{OpenError, SecretKey};
use crate::internal::Sealed;

/// How many door processes' agreed keys are kept; more doors than that only cost an agreement each.
const REMEMBERED_DOORS: usize = 1024;

/// A door process, by the key it seals to and its own public key.
type Door = (String, [u8; 32]);

/// Opens what doors sealed. Holds every key that doors may still use; the envelope names which.
pub struct AdmissionSeal {
    secrets: BTreeMap<String, StaticSecret>,
    doors: Mutex<Recent<Door, Arc<Channel>>>,
}

impl AdmissionSeal {
    /// Takes admission's secrets by key id.
    #[must_use]
    pub fn new(secrets: impl IntoIterator<Item = (String, SecretKey)>) -> Self {
        let secrets = secrets.into_iter().map(|(id, key)| (id, StaticSecret::from(*key.expose()))).collect();
        Self { secrets, doors: Mutex::new(Recent::new(REMEMBERED_DOORS)) }
    }

    /// Opens the command that has this id.
    ///
    /// # Errors
    /// [`OpenError::UnknownKey`] if sealed to a key not held here, else what is wrong with the envelope.
    pub fn open_command(&self, command_id: Uuid, sealed: &Sealed) -> Result<Bytes, OpenError> {
        let (door, channel) = self.channel(sealed)?;
        let plaintext = channel.open(Direction::Command, command_id, sealed)?;
        // Only a door whose envelope opened is remembered, so garbage evicts nobody.
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        doors.insert(door, channel);
        Ok(plaintext)
    }

    /// Seals the answer to a command, for the process that sealed `command`.
    ///
    /// # Errors
    /// As [`Self::open_command`] for the envelope's key and sender.
    pub fn seal_answer(&self, command_id: Uuid, command: &Sealed, plaintext: &[u8]) -> Result<Sealed, OpenError> {
        let (_, channel) = self.channel(command)?;
        Ok(channel.seal(Direction::Answer, command_id, plaintext))
    }

    /// The public halves, for the doors.
    pub fn public_keys(&self) -> impl Iterator<Item = (&str, [u8; 32])> {
        self.secrets.iter().map(|(id, secret)| (id.as_str(), PublicKey::from(secret).to_bytes()))
    }

    fn channel(&self, sealed: &Sealed) -> Result<(Door, Arc<Channel>), OpenError> {
        let secret = self.secrets.get(&sealed.key_id).ok_or(OpenError::UnknownKey)?;
        let public: [u8; 32] = sealed.sender.as_ref().try_into().map_err(|_| OpenError::Malformed)?;
        let door = (sealed.key_id.clone(), public);
        let known = {
            let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
            doors.get(&door).cloned()
        };
        if let Some(channel) = known {
            return Ok((door, channel));
        }
        let channel = Channel::of_admission(secret, &PublicKey::from(public), &sealed.key_id);
        Ok((door, Arc::new(channel.map_err(|_| OpenError::Malformed)?)))
    }
}

impl fmt::Debug for AdmissionSeal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AdmissionSeal").field("keys", &self.secrets.keys()).finish_non_exhaustive()
    }
}
