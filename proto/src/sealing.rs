//! What keeps secrets from the broker: envelopes between doors and admission, and ciphers under deployment keys.
//!
//! A door ([`DoorSeal`]) seals commands so that only admission ([`AdmissionSeal`]) opens them, and opens the answers.
//! [`CipherKeys`] encrypts what lies at rest or in a bucket. Everything fails closed: an unknown key, another command's
//! envelope and an altered byte are errors, each of its own kind.

mod admission;
mod channel;
mod cipher;
mod door;
mod key;
mod passed_token;
mod recent;

pub use admission::AdmissionSeal;
pub use cipher::CipherKeys;
pub use door::DoorSeal;
pub use key::{SecretKey, derive};
pub use passed_token::{open_token, seal_token};

/// Longest key id that is accepted, in bytes.
pub const MAX_KEY_ID_BYTES: usize = 32;

/// Why something did not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Sealed under a key that this process does not hold.
    #[error("sealed under a key that is not known here")]
    UnknownKey,
    /// Not the shape of a sealed message.
    #[error("not a sealed message")]
    Malformed,
    /// Altered, sealed under another key of the same id, or moved from where it belongs.
    #[error("the seal is broken")]
    Broken,
}

/// A public key with which no secret can be agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no secret can be agreed with this public key")]
pub struct WeakKey;

#[cfg(test)]
mod tests;
