//! The pair of ciphers that one door process and admission share.

use bytes::Bytes;
use chacha20poly1305::aead::{Aead, AeadCore, OsRng, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use uuid::Uuid;
use x25519_dalek::{PublicKey, StaticSecret};

use super::{OpenError, SecretKey, WeakKey, derive};
use crate::internal::Sealed;

const NONCE_BYTES: usize = 24;

/// Which way an envelope goes: each way has its own key, so that an answer can never pass for a command.
#[derive(Clone, Copy, Debug)]
pub(super) enum Direction {
    Command,
    Answer,
}

impl Direction {
    const fn label(self) -> &'static str {
        match self {
            Self::Command => "roadstead/seal/v1/command",
            Self::Answer => "roadstead/seal/v1/answer",
        }
    }
}

/// The keys agreed between one door process and one of admission's keys.
pub(super) struct Channel {
    key_id: String,
    sender: Bytes,
    command: XChaCha20Poly1305,
    answer: XChaCha20Poly1305,
}

impl Channel {
    /// The door's end.
    pub(super) fn of_door(secret: &StaticSecret, admission: &PublicKey, key_id: &str) -> Result<Self, WeakKey> {
        Self::agree(secret, admission, &PublicKey::from(secret), admission, key_id)
    }

    /// Admission's end.
    pub(super) fn of_admission(secret: &StaticSecret, door: &PublicKey, key_id: &str) -> Result<Self, WeakKey> {
        Self::agree(secret, door, door, &PublicKey::from(secret), key_id)
    }

    fn agree(
        own: &StaticSecret,
        theirs: &PublicKey,
        door: &PublicKey,
        admission: &PublicKey,
        key_id: &str,
    ) -> Result<Self, WeakKey> {
        let shared = own.diffie_hellman(theirs);
        if !shared.was_contributory() {
            return Err(WeakKey);
        }
        let shared = SecretKey::from_bytes(shared.to_bytes());
        // Both public keys in the salt bind the ciphers to exactly these two ends.
        let salt = [*door.as_bytes(), *admission.as_bytes()].concat();
        let cipher =
            |direction: Direction| XChaCha20Poly1305::new(derive(&shared, &salt, direction.label()).expose().into());
        Ok(Self {
            key_id: key_id.to_owned(),
            sender: Bytes::copy_from_slice(door.as_bytes()),
            command: cipher(Direction::Command),
            answer: cipher(Direction::Answer),
        })
    }

    #[allow(clippy::expect_used, reason = "this cipher refuses only messages of 256 GiB and more")]
    pub(super) fn seal(&self, direction: Direction, command_id: Uuid, plaintext: &[u8]) -> Sealed {
        let nonce = XChaCha20Poly1305::generate_nonce(&mut OsRng);
        let aad = associated_data(direction, command_id);
        let payload = Payload { msg: plaintext, aad: &aad };
        let ciphertext = self.cipher(direction).encrypt(&nonce, payload).expect("a message of bounded size");
        Sealed {
            key_id: self.key_id.clone(),
            sender: self.sender.clone(),
            nonce: Bytes::copy_from_slice(&nonce),
            ciphertext: ciphertext.into(),
        }
    }

    pub(super) fn open(&self, direction: Direction, command_id: Uuid, sealed: &Sealed) -> Result<Bytes, OpenError> {
        if sealed.nonce.len() != NONCE_BYTES {
            return Err(OpenError::Malformed);
        }
        if sealed.key_id != self.key_id || sealed.sender != self.sender {
            return Err(OpenError::Broken);
        }
        let aad = associated_data(direction, command_id);
        let payload = Payload { msg: &sealed.ciphertext, aad: &aad };
        let plaintext = self.cipher(direction).decrypt(XNonce::from_slice(&sealed.nonce), payload);
        plaintext.map(Bytes::from).map_err(|_| OpenError::Broken)
    }

    const fn cipher(&self, direction: Direction) -> &XChaCha20Poly1305 {
        match direction {
            Direction::Command => &self.command,
            Direction::Answer => &self.answer,
        }
    }
}

/// Binds an envelope to its command and direction.
fn associated_data(direction: Direction, command_id: Uuid) -> Vec<u8> {
    [direction.label().as_bytes(), command_id.as_bytes()].concat()
}
