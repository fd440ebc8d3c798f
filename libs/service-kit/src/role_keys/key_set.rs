//! Keys of one purpose with their ids, as they stand in a key file.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_proto::sealing::{MAX_KEY_ID_BYTES, SecretKey};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

/// A key and the id it goes by.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedKey {
    #[serde(deserialize_with = "key_id")]
    pub(crate) id: String,
    #[serde(with = "key_text")]
    pub(crate) key: SecretKey,
}

/// One active key and those that only open, verify or are announced.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeySet {
    pub(crate) active: NamedKey,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) others: Vec<NamedKey>,
}

impl KeySet {
    /// The active key with its id.
    pub(crate) fn active(&self) -> (String, SecretKey) {
        (self.active.id.clone(), self.active.key.clone())
    }

    /// The others with their ids.
    pub(crate) fn others(&self) -> impl Iterator<Item = (String, SecretKey)> {
        self.others.iter().map(|named| (named.id.clone(), named.key.clone()))
    }

    /// All with their ids, the active one first.
    pub(crate) fn all(&self) -> impl Iterator<Item = (String, SecretKey)> {
        std::iter::once(self.active()).chain(self.others())
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KeySet").field("active", &self.active.id).finish_non_exhaustive()
    }
}

/// Whether this can be a key's id: short, lower case letters and digits.
fn is_key_id(id: &str) -> bool {
    (1..=MAX_KEY_ID_BYTES).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// Reads a key's id.
pub(crate) fn key_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let id = String::deserialize(deserializer)?;
    if is_key_id(&id) { Ok(id) } else { Err(D::Error::custom("not a key id")) }
}

pub(crate) mod key_text {
    //! A key as base64.

    use super::*;

    pub(crate) fn serialize<S: Serializer>(key: &SecretKey, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&Zeroizing::new(STANDARD.encode(key.expose())))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SecretKey, D::Error> {
        let text = Zeroizing::new(String::deserialize(deserializer)?);
        let bytes = Zeroizing::new(STANDARD.decode(text.as_bytes()).map_err(|_| D::Error::custom("not base64"))?);
        let bytes = <[u8; 32]>::try_from(bytes.as_slice()).map_err(|_| D::Error::custom("not 32 bytes"))?;
        Ok(SecretKey::from_bytes(bytes))
    }
}
