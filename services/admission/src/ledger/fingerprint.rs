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
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;
    use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor, ReflectMessage as _};
    use roadstead_proto::api::v1;
    use roadstead_proto::sealing::SecretKey;

    use super::*;
    use crate::ledger::method_row::ROWS;

    fn of(method: Method, message: &impl prost::Message) -> Fingerprint {
        Fingerprint::of(method, &message.encode_to_vec()).unwrap()
    }

    /// A message with every field set, to a depth that ends recursive types.
    fn full(descriptor: &MessageDescriptor, depth: usize) -> DynamicMessage {
        let mut message = DynamicMessage::new(descriptor.clone());
        for field in descriptor.fields() {
            if let Some(value) = sample(&field, depth) {
                // A oneof keeps the last of its fields.
                message.set_field(&field, value);
            }
        }
        message
    }

    fn sample(field: &FieldDescriptor, depth: usize) -> Option<Value> {
        if field.is_map() {
            let Kind::Message(entry) = field.kind() else { return None };
            let key = match entry.map_entry_key_field().kind() {
                Kind::String => MapKey::String("k".into()),
                _ => MapKey::U32(1),
            };
            let value = single(&entry.map_entry_value_field().kind(), depth)?;
            return Some(Value::Map([(key, value)].into()));
        }
        let one = single(&field.kind(), depth)?;
        Some(if field.is_list() { Value::List(vec![one]) } else { one })
    }

    fn single(kind: &Kind, depth: usize) -> Option<Value> {
        Some(match kind {
            Kind::Message(_) if depth == 0 => return None,
            Kind::Message(message) => Value::Message(full(message, depth - 1)),
            Kind::String => Value::String("x".into()),
            Kind::Bytes => Value::Bytes(vec![1].into()),
            Kind::Bool => Value::Bool(true),
            Kind::Enum(_) => Value::EnumNumber(1),
            Kind::Double => Value::F64(1.5),
            Kind::Float => Value::F32(1.5),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(3),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(3),
            Kind::Uint32 | Kind::Fixed32 => Value::U32(3),
            Kind::Uint64 | Kind::Fixed64 => Value::U64(3),
        })
    }

    /// Every message that differs from `message` in one leaf: changed, dropped, or one unknown field more.
    fn variants(message: &DynamicMessage) -> Vec<DynamicMessage> {
        let mut variants = Vec::new();
        for (field, value) in message.fields() {
            let with = |value| {
                let mut variant = message.clone();
                variant.set_field(&field, value);
                variant
            };
            variants.extend(changes(value).into_iter().map(with));
            let mut without = message.clone();
            without.clear_field(&field);
            variants.push(without);
        }
        let mut extended = message.encode_to_vec();
        prost::encoding::uint32::encode(9999, &7, &mut extended);
        variants.push(DynamicMessage::decode(message.descriptor(), extended.as_slice()).unwrap());
        variants
    }

    fn changes(value: &Value) -> Vec<Value> {
        match value {
            Value::Message(message) => variants(message).into_iter().map(Value::Message).collect(),
            Value::List(values) => {
                let mut changed = values.first().map(changes).unwrap_or_default();
                changed = changed.into_iter().map(|value| Value::List(vec![value])).collect();
                changed.push(Value::List([values.clone(), values.clone()].concat()));
                changed
            }
            Value::Map(entries) => {
                let mut changed = Vec::new();
                for (key, value) in entries {
                    changed.extend(changes(value).into_iter().map(|value| Value::Map([(key.clone(), value)].into())));
                    if let MapKey::String(_) = key {
                        changed.push(Value::Map([(MapKey::String("other".into()), value.clone())].into()));
                    }
                }
                changed
            }
            Value::Bool(value) => vec![Value::Bool(!value)],
            Value::I32(value) => vec![Value::I32(value + 1)],
            Value::I64(value) => vec![Value::I64(value + 1)],
            Value::U32(value) => vec![Value::U32(value + 1)],
            Value::U64(value) => vec![Value::U64(value + 1)],
            Value::F32(value) => vec![Value::F32(value + 1.0)],
            Value::F64(value) => vec![Value::F64(value + 1.0)],
            Value::EnumNumber(value) => vec![Value::EnumNumber(value + 1)],
            Value::String(value) => vec![Value::String(format!("{value}y")), Value::String(String::new())],
            Value::Bytes(_) => vec![Value::Bytes(vec![2].into())],
        }
    }

    #[test]
    fn every_change_of_a_leaf_of_every_mutation_changes_the_fingerprint() {
        for row in ROWS {
            let mut base = full(&row.method.input_descriptor(), 5);
            base.clear_field_by_name(REQUEST_ID);
            let fingerprint = of(row.method, &base);
            let variants = variants(&base);
            assert!(variants.len() > 3, "{}", row.method);
            for variant in variants {
                if variant.encode_to_vec() != base.encode_to_vec() {
                    assert_ne!(of(row.method, &variant), fingerprint, "{}: {variant:?}", row.method);
                }
            }
        }
    }

    #[test]
    fn the_request_id_takes_no_part_and_the_method_does() {
        let request =
            |id: &str| v1::StopSandboxRequest { name: "n".into(), request_id: id.into(), workspace_scope: None };
        assert_eq!(of(Method::StopSandbox, &request("a")), of(Method::StopSandbox, &request("b")));
        assert_ne!(of(Method::StopSandbox, &request("a")), of(Method::StartSandbox, &request("a")));
    }

    #[test]
    fn an_unset_field_differs_from_one_set_to_its_default() {
        let spec = |user_namespaces| v1::CreateSandboxRequest {
            spec: Some(v1::SandboxSpec {
                template: Some(v1::SandboxTemplate { user_namespaces, ..Default::default() }),
                ..Default::default()
            }),
            ..Default::default()
        };
        assert_ne!(of(Method::CreateSandbox, &spec(None)), of(Method::CreateSandbox, &spec(Some(false))));
        let absent = v1::CreateSandboxRequest::default();
        let empty = v1::CreateSandboxRequest { spec: Some(v1::SandboxSpec::default()), ..Default::default() };
        assert_ne!(of(Method::CreateSandbox, &absent), of(Method::CreateSandbox, &empty));
    }

    proptest! {
        #[test]
        fn the_order_of_map_entries_on_the_wire_does_not_matter(
            labels in proptest::collection::btree_map("[a-c]{1,3}", "[a-c]{0,3}", 0..6), seed in any::<u64>(),
        ) {
            let encode = |entries: &[(&String, &String)]| {
                let mut bytes = Vec::new();
                for (key, value) in entries {
                    let one = v1::CreateWorkspaceRequest {
                        labels: [((*key).clone(), (*value).clone())].into(), ..Default::default()
                    };
                    bytes.extend(one.encode_to_vec());
                }
                bytes
            };
            let mut entries = labels.iter().collect::<Vec<_>>();
            let sorted = Fingerprint::of(Method::CreateWorkspace, &encode(&entries)).unwrap();
            let len = entries.len().max(1);
            entries.rotate_left(seed as usize % len);
            if seed % 2 == 0 { entries.reverse(); }
            prop_assert_eq!(Fingerprint::of(Method::CreateWorkspace, &encode(&entries)).unwrap(), sorted);
        }

        #[test]
        fn other_bytes_are_refused_or_hashed_but_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(Fingerprint::of(Method::CreateSandbox, &bytes), Fingerprint::of(Method::CreateSandbox, &bytes));
        }
    }

    fn key(id: &str, byte: u8) -> (String, SecretKey) {
        (id.to_owned(), SecretKey::from_bytes([byte; 32]))
    }

    #[test]
    fn a_rotated_key_still_verifies_and_an_unknown_one_tells_nothing() {
        let fingerprint = of(Method::CreateSandbox, &v1::CreateSandboxRequest::default());
        let before = Fingerprints::new(HmacKeys::new(key("old", 1), []));
        let after = Fingerprints::new(HmacKeys::new(key("new", 2), [key("old", 1)]));
        let kept = before.keep(Protection::Keyed, fingerprint).unwrap();
        assert_eq!(after.matches(&kept.key_id, &kept.hash, fingerprint), Ok(true));
        assert_ne!(after.keep(Protection::Keyed, fingerprint).unwrap().hash, kept.hash);
        let other = Fingerprints::new(HmacKeys::new(key("new", 2), []));
        assert_eq!(other.matches(&kept.key_id, &kept.hash, fingerprint), Err(UnknownKey));
    }

    #[test]
    fn without_a_key_only_plain_fingerprints_are_kept() {
        let fingerprint = of(Method::CreateSandbox, &v1::CreateSandboxRequest::default());
        let none = Fingerprints::default();
        assert_eq!(none.keep(Protection::Keyed, fingerprint), None);
        let plain = none.keep(Protection::Plain, fingerprint).unwrap();
        assert_eq!(none.matches(&plain.key_id, &plain.hash, fingerprint), Ok(true));
    }

    #[test]
    fn a_protected_fingerprint_is_not_the_plain_hash() {
        let fingerprint = of(Method::CreateSandbox, &v1::CreateSandboxRequest::default());
        let keys = Fingerprints::new(HmacKeys::new(key("k", 1), []));
        assert_ne!(keys.keep(Protection::Keyed, fingerprint).unwrap().hash, fingerprint.0);
        assert_eq!(format!("{fingerprint:?}"), "Fingerprint(..)");
    }
}
