//! HMAC-SHA256 under deployment keys.

use std::fmt;

use hmac::{Hmac, Mac as _};
use roadstead_proto::sealing::SecretKey;
use sha2::Sha256;

/// The keys of one purpose: the active one tags, all can check.
pub struct HmacKeys {
    active: (String, SecretKey),
    others: Vec<(String, SecretKey)>,
}

/// The key that made a tag is not held here, so nothing can be said about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tagged under a key that is not known here")]
pub struct UnknownKey;

impl HmacKeys {
    /// Takes the key that tags and those that only check, with their ids.
    #[must_use]
    pub fn new(active: (String, SecretKey), others: impl IntoIterator<Item = (String, SecretKey)>) -> Self {
        Self { active, others: others.into_iter().collect() }
    }

    /// Id of the key that tags.
    #[must_use]
    pub fn active_id(&self) -> &str {
        &self.active.0
    }

    /// The tag under the active key.
    #[must_use]
    pub fn tag(&self, bytes: &[u8]) -> [u8; 32] {
        mac(&self.active.1, bytes).finalize().into_bytes().into()
    }

    /// Whether `tag` is the tag of these bytes under the key of that id; compared in constant time.
    ///
    /// # Errors
    /// [`UnknownKey`] if there is no such key: neither yes nor no.
    pub fn verify(&self, key_id: &str, bytes: &[u8], tag: &[u8]) -> Result<bool, UnknownKey> {
        let keys = std::iter::once(&self.active).chain(&self.others);
        let (_, key) = keys.into_iter().find(|(id, _)| id == key_id).ok_or(UnknownKey)?;
        Ok(mac(key, bytes).verify_slice(tag).is_ok())
    }
}

fn mac(key: &SecretKey, bytes: &[u8]) -> Hmac<Sha256> {
    // A shorter key is padded with zeros by the definition of HMAC; padding it here leaves nothing that can fail.
    let mut block = zeroize::Zeroizing::new([0; 64]);
    block[..32].copy_from_slice(key.expose());
    let mut mac = <Hmac<Sha256> as hmac::Mac>::new((&*block).into());
    mac.update(bytes);
    mac
}

impl fmt::Debug for HmacKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HmacKeys").field("active", &self.active.0).finish_non_exhaustive()
    }
}
