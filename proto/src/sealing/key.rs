//! Secret keys and their derivation.

use std::fmt;

use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroize;

/// A 256-bit secret; erased when dropped, never printed.
#[derive(Clone)]
pub struct SecretKey([u8; 32]);

impl SecretKey {
    /// Takes the bytes over; the caller's copy is its own to erase.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for the algorithm that uses them.
    #[must_use]
    pub const fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Drop for SecretKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretKey(..)")
    }
}

/// HKDF-SHA256: the key of one purpose. The label names purpose and version and is used for nothing else.
#[must_use]
#[allow(clippy::expect_used, reason = "32 bytes is a length that HKDF-SHA256 always gives")]
pub fn derive(secret: &SecretKey, salt: &[u8], label: &str) -> SecretKey {
    let mut key = SecretKey([0; 32]);
    Hkdf::<Sha256>::new(Some(salt), secret.expose()).expand(label.as_bytes(), &mut key.0).expect("a valid length");
    key
}
