//! A door's end: seals commands, opens answers.

use std::fmt;

use bytes::Bytes;
use chacha20poly1305::aead::OsRng;
use uuid::Uuid;
use x25519_dalek::{PublicKey, StaticSecret};

use super::channel::{Channel, Direction};
use super::{OpenError, WeakKey};
use crate::internal::Sealed;

/// Seals the commands of one door process. Its own key is made anew at every start and never leaves the process, so
/// nobody else can read the answers, and nothing recorded can be opened with the door's files.
pub struct DoorSeal {
    channel: Channel,
}

impl DoorSeal {
    /// Makes the process's key and agrees a secret with admission's public key of that id.
    ///
    /// # Errors
    /// [`WeakKey`] if the public key is degenerate.
    pub fn new(admission_public: [u8; 32], key_id: &str) -> Result<Self, WeakKey> {
        let secret = StaticSecret::random_from_rng(OsRng);
        Ok(Self { channel: Channel::of_door(&secret, &PublicKey::from(admission_public), key_id)? })
    }

    /// Seals an encoded command.
    #[must_use]
    pub fn seal_command(&self, command_id: Uuid, plaintext: &[u8]) -> Sealed {
        self.channel.seal(Direction::Command, command_id, plaintext)
    }

    /// Opens the answer to that command.
    ///
    /// # Errors
    /// [`OpenError::Broken`] if it is not admission's answer to this command of this process.
    pub fn open_answer(&self, command_id: Uuid, sealed: &Sealed) -> Result<Bytes, OpenError> {
        self.channel.open(Direction::Answer, command_id, sealed)
    }
}

impl fmt::Debug for DoorSeal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("DoorSeal(..)")
    }
}
