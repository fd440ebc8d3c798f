//! One thing changed.

use prost_reflect::prost::{Message as _, encoding};
use prost_reflect::{DynamicMessage, FieldDescriptor, MapKey, ReflectMessage as _, UnknownField, Value};

use super::full::{other, shallow};

/// A field that no message of ours has.
const UNKNOWN: u32 = 18_999;
const UNKNOWN_FIELD: &str = "unknown field";

/// A message that differs from another in one thing.
#[derive(Clone, Debug)]
pub struct Change {
    /// Where it differs: names of fields with dots between them.
    pub path: String,
    /// In what.
    pub what: &'static str,
    /// The changed message.
    pub message: DynamicMessage,
}

/// Every change of one thing in `base`: a leaf changed, set to its default, set, or taken away; an entry of a list or
/// a map more, less, or in another place; a field more that nobody knows. No two of them are the same message.
#[must_use]
pub fn changes(base: &DynamicMessage) -> Vec<Change> {
    changes_at(base, &mut |_, _| true)
}

/// Those of them whose path and kind are `wanted`: the rest is not made.
pub fn changes_at(base: &DynamicMessage, wanted: &mut dyn FnMut(&str, &'static str) -> bool) -> Vec<Change> {
    let mut all = Vec::new();
    for field in base.descriptor().fields() {
        let name = field.name();
        let mut of_field: Vec<Change> = Vec::new();
        for (path, what, value) in
            of_field_values(base, &field, &mut |path, what| wanted(&format!("{name}{path}"), what))
        {
            let mut message = base.clone();
            match value.filter(|value| field.supports_presence() || !value.is_default_for_field(&field)) {
                Some(value) => message.set_field(&field, value),
                None => message.clear_field(&field),
            }
            // Of the changes of the field itself some may come to nothing or to the same.
            let itself = path.is_empty();
            if !itself || (message != *base && of_field.iter().all(|change| change.message != message)) {
                of_field.push(Change { path: format!("{name}{path}"), what, message });
            }
        }
        all.append(&mut of_field);
    }
    if wanted("", UNKNOWN_FIELD) {
        all.push(Change { path: String::new(), what: UNKNOWN_FIELD, message: with_unknown(base) });
    }
    all
}

/// Path below the field, what was done, and what to set the field to; none clears it.
type Changed = (String, &'static str, Option<Value>);
type Wanted<'a> = &'a mut dyn FnMut(&str, &'static str) -> bool;

fn of_field_values(base: &DynamicMessage, field: &FieldDescriptor, wanted: Wanted<'_>) -> Vec<Changed> {
    let mut changed = Vec::new();
    if base.has_field(field) {
        changed = of_value(&base.get_field(field), wanted);
        if wanted("", "taken away") {
            changed.push((String::new(), "taken away", None));
        }
    } else if wanted("", "set") {
        changed.push((String::new(), "set", Some(shallow(field))));
    }
    if field.supports_presence() && wanted("", "default") {
        changed.push((String::new(), "default", Some(Value::default_value(&field.kind()))));
    }
    changed
}

fn of_value(value: &Value, wanted: Wanted<'_>) -> Vec<Changed> {
    // Those of what is inside, and those of the value itself.
    let (mut changed, mut own): (Vec<Changed>, Vec<(&'static str, Value)>) = Default::default();
    match value {
        Value::Message(message) => {
            for Change { path, what, message } in changes_at(message, &mut |path, what| wanted(&below(path), what)) {
                changed.push((below(&path), what, Some(Value::Message(message))));
            }
        }
        Value::List(values) => {
            if let Some((first, rest)) = values.split_first() {
                let list = |value| Value::List([vec![value], rest.to_vec()].concat());
                changed = of_value(first, wanted);
                changed.iter_mut().for_each(|(_, _, value)| *value = value.take().map(list));
                own.push(("one less", Value::List(rest.to_vec())));
            }
            own.push(("one more", other(value)));
            own.push(("order", Value::List(values.iter().rev().cloned().collect())));
        }
        Value::Map(entries) => {
            if let Some((key, value)) = entries.iter().min_by_key(|(key, _)| format!("{key:?}")) {
                let with = |value: Value| {
                    let mut entries = entries.clone();
                    entries.insert(key.clone(), value);
                    Value::Map(entries)
                };
                changed = of_value(value, wanted);
                changed.iter_mut().for_each(|(_, _, value)| *value = value.take().map(with));
                let mut without = entries.clone();
                without.remove(key);
                own.push(("one less", Value::Map(without.clone())));
                if let MapKey::String(key) = key {
                    without.insert(MapKey::String(format!("{key}x")), value.clone());
                    own.push(("another key", Value::Map(without)));
                }
            }
        }
        scalar => {
            own.push(("changed", other(scalar)));
            if let Value::String(text) = scalar {
                own.push(("case", Value::String(text.to_uppercase())));
            }
        }
    }
    own.retain(|(what, _)| wanted("", what));
    changed.extend(own.into_iter().map(|(what, value)| (String::new(), what, Some(value))));
    changed
}

fn below(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!(".{path}") }
}

fn with_unknown(message: &DynamicMessage) -> DynamicMessage {
    let mut bytes = message.encode_to_vec();
    encoding::uint32::encode(UNKNOWN, &7, &mut bytes);
    let message = DynamicMessage::decode(message.descriptor(), bytes.as_slice()).unwrap();
    assert_eq!(message.unknown_fields().map(UnknownField::number).last(), Some(UNKNOWN));
    message
}
