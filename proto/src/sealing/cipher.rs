//! Encryption under deployment keys: credentials at rest, environments in snapshots, answers with secrets.

use std::collections::BTreeMap;
use std::fmt;

use chacha20poly1305::aead::{Aead, AeadCore, OsRng, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};

use super::{MAX_KEY_ID_BYTES, OpenError, SecretKey};

/// First byte of what is encrypted here; another one means another layout.
const LAYOUT: u8 = 1;
const NONCE_BYTES: usize = 24;

/// The keys of one purpose: one encrypts, all decrypt. What is encrypted names its key:
/// layout, length of key id, key id, nonce, ciphertext with tag.
pub struct CipherKeys {
    active_id: String,
    active: XChaCha20Poly1305,
    others: BTreeMap<String, XChaCha20Poly1305>,
}

impl CipherKeys {
    /// Takes the key that encrypts and those that only decrypt, with their ids (at most [`MAX_KEY_ID_BYTES`]).
    #[must_use]
    pub fn new(active: (String, SecretKey), others: impl IntoIterator<Item = (String, SecretKey)>) -> Self {
        let others = others.into_iter().map(|(id, key)| (id, cipher(&key))).collect();
        Self { active: cipher(&active.1), active_id: active.0, others }
    }

    /// Encrypts under the active key. `context` says where the bytes belong (an object's id); they open only there.
    #[must_use]
    #[allow(clippy::expect_used, reason = "this cipher refuses only messages of 256 GiB and more")]
    pub fn encrypt(&self, context: &[u8], plaintext: &[u8]) -> Vec<u8> {
        let header = header(&self.active_id);
        let nonce = XChaCha20Poly1305::generate_nonce(&mut OsRng);
        let aad = [&header, context].concat();
        let payload = Payload { msg: plaintext, aad: &aad };
        let ciphertext = self.active.encrypt(&nonce, payload).expect("a message of bounded size");
        [&header[..], &nonce, &ciphertext].concat()
    }

    /// Decrypts what [`Self::encrypt`] made for the same context, under any of the keys.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn decrypt(&self, context: &[u8], encrypted: &[u8]) -> Result<Vec<u8>, OpenError> {
        let (&layout, rest) = encrypted.split_first().ok_or(OpenError::Malformed)?;
        let (&id_length, rest) = rest.split_first().ok_or(OpenError::Malformed)?;
        let id_length = usize::from(id_length);
        if layout != LAYOUT || id_length > MAX_KEY_ID_BYTES {
            return Err(OpenError::Malformed);
        }
        let (id, rest) = rest.split_at_checked(id_length).ok_or(OpenError::Malformed)?;
        let (nonce, ciphertext) = rest.split_at_checked(NONCE_BYTES).ok_or(OpenError::Malformed)?;
        let id = std::str::from_utf8(id).map_err(|_| OpenError::Malformed)?;
        let cipher = if id == self.active_id { Some(&self.active) } else { self.others.get(id) };
        let cipher = cipher.ok_or(OpenError::UnknownKey)?;
        let aad = [&header(id), context].concat();
        let payload = Payload { msg: ciphertext, aad: &aad };
        cipher.decrypt(XNonce::from_slice(nonce), payload).map_err(|_| OpenError::Broken)
    }
}

fn cipher(key: &SecretKey) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(key.expose().into())
}

/// What stands before the nonce; authenticated with the context.
fn header(id: &str) -> Vec<u8> {
    debug_assert!(id.len() <= MAX_KEY_ID_BYTES, "key ids are bounded where they are made");
    let length = u8::try_from(id.len()).unwrap_or(u8::MAX);
    [&[LAYOUT, length], id.as_bytes()].concat()
}

impl fmt::Debug for CipherKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CipherKeys").field("active", &self.active_id).finish_non_exhaustive()
    }
}
