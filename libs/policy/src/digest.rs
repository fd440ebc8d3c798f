//! Hashes over sequences of parts that cannot run into each other.

use sha2::{Digest as _, Sha256};

/// SHA-256 over a versioned tag and parts, each with its length before it.
#[derive(Clone, Debug)]
pub(crate) struct Digest(Sha256);

impl Digest {
    /// Starts with a tag that names the purpose and the version of the layout.
    pub(crate) fn new(tag: &str) -> Self {
        let mut digest = Self(Sha256::new());
        digest.text(tag);
        digest
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    pub(crate) fn flag(&mut self, flag: bool) {
        self.number(u64::from(flag));
    }

    /// The first 8 bytes, little endian; never 0, which on the wire means "none".
    pub(crate) fn token(self) -> u64 {
        let hash: [u8; 32] = self.0.finalize().into();
        let [a, b, c, d, e, f, g, h, ..] = hash;
        u64::from_le_bytes([a, b, c, d, e, f, g, h]).max(1)
    }
}

/// Lower-case hexadecimal SHA-256.
pub(crate) fn hex(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}
