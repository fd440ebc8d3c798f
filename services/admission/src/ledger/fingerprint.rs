//! The fingerprint of a request: equal for two encodings of the same request, different for any two requests.
//!
//! The canonical form is made by descriptor from the bytes as received: fields in order of number, maps in order of
//! key, lists as they stand, presence kept, fields that this version does not know included, the request id left out.

use std::collections::BTreeMap;
use std::fmt;

use prost_reflect::{DynamicMessage, MapKey, UnknownField, Value};
use roadstead_proto::method::Method;
use roadstead_service_kit::hmac_keys::{HmacKeys, UnknownKey};
use sha2::{Digest as _, Sha256};

use super::Protection;

const REQUEST_ID: &str = "request_id";

/// A hash over the canonical form of a request. It may let an attacker test guesses, so it is not kept for methods
/// that are protected, and never printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

/// The request cannot be read as its method's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request cannot be decoded")]
pub struct Undecodable;

impl Fingerprint {
    /// Of a request as it was received.
    ///
    /// # Errors
    /// If the bytes are no message of that method.
    pub fn of(method: Method, request: &[u8]) -> Result<Self, Undecodable> {
        let mut message = DynamicMessage::decode(method.input_descriptor(), request).map_err(|_| Undecodable)?;
        message.clear_field_by_name(REQUEST_ID);
        let mut canonical = Canonical(Sha256::new());
        canonical.text("roadstead request 1");
        canonical.text(method.name());
        canonical.message(&message);
        Ok(Self(canonical.0.finalize().into()))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Fingerprint(..)")
    }
}

/// Writes values so that no two different ones give the same bytes: each with its kind and length before it.
struct Canonical(Sha256);

impl Canonical {
    fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn kind(&mut self, kind: u8) {
        self.0.update([kind]);
    }

    fn message(&mut self, message: &DynamicMessage) {
        let fields = message.fields().map(|(field, value)| (field.number(), value)).collect::<BTreeMap<_, _>>();
        self.number(fields.len() as u64);
        for (number, value) in fields {
            self.number(number.into());
            self.value(value);
        }
        self.unknown(message.unknown_fields());
    }

    /// In order of number; fields of one number stay in the order received.
    fn unknown<'a>(&mut self, fields: impl Iterator<Item = &'a UnknownField>) {
        let mut fields = fields.collect::<Vec<_>>();
        fields.sort_by_key(|field| field.number());
        self.number(fields.len() as u64);
        for field in fields {
            let mut encoded = Vec::new();
            field.encode(&mut encoded);
            self.bytes(&encoded);
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Bool(value) => self.scalar(1, u64::from(*value)),
            Value::I32(value) => self.scalar(2, i64::from(*value).cast_unsigned()),
            Value::I64(value) => self.scalar(3, value.cast_unsigned()),
            Value::U32(value) => self.scalar(4, u64::from(*value)),
            Value::U64(value) => self.scalar(5, *value),
            Value::F32(value) => self.scalar(6, u64::from(value.to_bits())),
            Value::F64(value) => self.scalar(7, value.to_bits()),
            Value::EnumNumber(value) => self.scalar(8, i64::from(*value).cast_unsigned()),
            Value::String(value) => {
                self.kind(9);
                self.text(value);
            }
            Value::Bytes(value) => {
                self.kind(10);
                self.bytes(value);
            }
            Value::Message(message) => {
                self.kind(11);
                self.message(message);
            }
            Value::List(values) => {
                self.kind(12);
                self.number(values.len() as u64);
                values.iter().for_each(|value| self.value(value));
            }
            Value::Map(entries) => {
                self.kind(13);
                self.number(entries.len() as u64);
                let mut entries = entries.iter().map(|(key, value)| (Key::of(key), value)).collect::<Vec<_>>();
                entries.sort_by(|(one, _), (other, _)| one.cmp(other));
                for (key, value) in entries {
                    self.value(&key.into_value());
                    self.value(value);
                }
            }
        }
    }

    fn scalar(&mut self, kind: u8, value: u64) {
        self.kind(kind);
        self.number(value);
    }
}

/// A map's key in an order of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Bool(bool),
    Signed32(i32),
    Signed64(i64),
    Unsigned32(u32),
    Unsigned64(u64),
    Text(String),
}

impl Key {
    fn of(key: &MapKey) -> Self {
        match key {
            MapKey::Bool(key) => Self::Bool(*key),
            MapKey::I32(key) => Self::Signed32(*key),
            MapKey::I64(key) => Self::Signed64(*key),
            MapKey::U32(key) => Self::Unsigned32(*key),
            MapKey::U64(key) => Self::Unsigned64(*key),
            MapKey::String(key) => Self::Text(key.clone()),
        }
    }

    fn into_value(self) -> Value {
        match self {
            Self::Bool(key) => Value::Bool(key),
            Self::Signed32(key) => Value::I32(key),
            Self::Signed64(key) => Value::I64(key),
            Self::Unsigned32(key) => Value::U32(key),
            Self::Unsigned64(key) => Value::U64(key),
            Self::Text(key) => Value::String(key),
        }
    }
}

/// Keeps and compares fingerprints. Without keys, those of protected methods can be neither.
#[derive(Debug, Default)]
pub struct Fingerprints(Option<HmacKeys>);

/// A fingerprint as a claim keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Empty for a plain hash.
    pub key_id: String,
    pub hash: [u8; 32],
}

impl Fingerprints {
    /// With the keys of the deployment.
    #[must_use]
    pub const fn new(keys: HmacKeys) -> Self {
        Self(Some(keys))
    }

    /// Ids of the keys, that of the one that new claims are kept under first. None: there are no keys.
    pub fn key_ids(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(HmacKeys::ids)
    }

    /// What a new claim keeps; none if the method is protected and there is no key.
    #[must_use]
    pub fn keep(&self, protection: Protection, fingerprint: Fingerprint) -> Option<Kept> {
        match protection {
            Protection::Plain => Some(Kept { key_id: String::new(), hash: fingerprint.0 }),
            Protection::Keyed => {
                let keys = self.0.as_ref()?;
                Some(Kept { key_id: keys.active_id().to_owned(), hash: keys.tag(&fingerprint.0) })
            }
        }
    }

    /// Whether a claim that was kept under `key_id` is of this request.
    ///
    /// # Errors
    /// [`UnknownKey`] if that key is not here: neither yes nor no.
    pub fn matches(&self, key_id: &str, kept: &[u8], fingerprint: Fingerprint) -> Result<bool, UnknownKey> {
        if key_id.is_empty() {
            return Ok(kept == fingerprint.0);
        }
        self.0.as_ref().ok_or(UnknownKey)?.verify(key_id, &fingerprint.0, kept)
    }
}

#[cfg(test)]
mod tests;
