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
    /// Takes the key that tags and those that only check, with their names. The id of a key is its name and a check of
    /// the key itself: what stands under a name elsewhere is never taken for it.
    #[must_use]
    pub fn new(active: (String, SecretKey), others: impl IntoIterator<Item = (String, SecretKey)>) -> Self {
        Self { active: with_check(active), others: others.into_iter().map(with_check).collect() }
    }

    /// Ids of all keys, that of the one that tags first.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.active).chain(&self.others).map(|(id, _)| id.as_str())
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

fn with_check((name, key): (String, SecretKey)) -> (String, SecretKey) {
    let [first, second, third, fourth, ..] = <[u8; 32]>::from(mac(&key, b"roadstead key id 1").finalize().into_bytes());
    (format!("{name}.{:08x}", u32::from_be_bytes([first, second, third, fourth])), key)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(name: &str, byte: u8) -> HmacKeys {
        HmacKeys::new((name.to_owned(), SecretKey::from_bytes([byte; 32])), [])
    }

    #[test]
    fn another_key_of_the_same_name_is_an_unknown_key() {
        let (ours, theirs) = (keys("k", 1), keys("k", 2));
        assert_eq!(theirs.verify(ours.active_id(), b"payload", &ours.tag(b"payload")), Err(UnknownKey));
        assert_eq!(keys("k", 1).verify(ours.active_id(), b"payload", &ours.tag(b"payload")), Ok(true));
        assert_eq!(ours.verify(ours.active_id(), b"other", &ours.tag(b"payload")), Ok(false));
    }

    #[test]
    fn the_key_that_tags_is_the_first() {
        let both = HmacKeys::new(
            ("new".to_owned(), SecretKey::from_bytes([1; 32])),
            [("old".to_owned(), SecretKey::from_bytes([2; 32]))],
        );
        let ids: Vec<_> = both.ids().collect();
        assert!(ids[0].starts_with("new.") && ids[1].starts_with("old.") && ids.len() == 2, "{ids:?}");
        assert_eq!(ids[0], both.active_id());
    }
}
