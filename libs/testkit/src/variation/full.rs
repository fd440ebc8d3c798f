//! Messages with everything set.

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value};

/// How often a message type may stand around its like.
const NESTED: usize = 1;

/// Messages that together have every field set, to a depth that ends recursive types: as many as it takes to show
/// each member of each oneof. Lists and maps have two different entries.
#[must_use]
pub fn full(descriptor: &MessageDescriptor) -> Vec<DynamicMessage> {
    messages(descriptor, &mut Vec::new())
}

fn messages(descriptor: &MessageDescriptor, around: &mut Vec<String>) -> Vec<DynamicMessage> {
    around.push(descriptor.full_name().to_owned());
    // Of each field or oneof, everything that is to be shown of it.
    let mut shown = Vec::new();
    for field in descriptor.fields().filter(|field| field.containing_oneof().is_none()) {
        shown.push(values(&field, around).into_iter().map(|value| (field.clone(), value)).collect::<Vec<_>>());
    }
    for oneof in descriptor.oneofs() {
        let members = oneof.fields().collect::<Vec<_>>();
        let of = |field: &FieldDescriptor, around: &mut Vec<String>| {
            values(field, around).into_iter().map(|value| (field.clone(), value)).collect::<Vec<_>>()
        };
        shown.push(members.iter().flat_map(|field| of(field, around)).collect());
    }
    around.pop();
    shown.retain(|choices| !choices.is_empty());
    let most = shown.iter().map(Vec::len).max().unwrap_or(1);
    let message = |at: usize| {
        let mut message = DynamicMessage::new(descriptor.clone());
        for choices in &shown {
            let (field, value) = &choices[at % choices.len()];
            message.set_field(field, value.clone());
        }
        message
    };
    (0..most).map(message).collect()
}

fn values(field: &FieldDescriptor, around: &mut Vec<String>) -> Vec<Value> {
    if field.is_map() {
        let Kind::Message(entry) = field.kind() else { return Vec::new() };
        let key = entry.map_entry_key_field().kind();
        let values = singles(&entry.map_entry_value_field().kind(), around);
        let second = second(&entry.map_entry_value_field().kind());
        return values.into_iter().map(|value| Value::Map(pair(&key, value, second.clone()).into())).collect();
    }
    let values = singles(&field.kind(), around);
    if field.is_list() {
        let second = second(&field.kind());
        return values.into_iter().map(|value| Value::List(vec![value, second.clone()])).collect();
    }
    values
}

fn singles(kind: &Kind, around: &mut Vec<String>) -> Vec<Value> {
    match kind {
        Kind::Message(message) => {
            if around.iter().filter(|name| *name == message.full_name()).count() >= NESTED {
                return Vec::new();
            }
            messages(message, around).into_iter().map(Value::Message).collect()
        }
        kind => vec![scalar(kind)],
    }
}

fn pair(key: &Kind, first: Value, second: Value) -> [(MapKey, Value); 2] {
    let keys = match key {
        Kind::Bool => [MapKey::Bool(false), MapKey::Bool(true)],
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => [MapKey::I32(1), MapKey::I32(-2)],
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => [MapKey::I64(1), MapKey::I64(-2)],
        Kind::Uint32 | Kind::Fixed32 => [MapKey::U32(1), MapKey::U32(2)],
        Kind::Uint64 | Kind::Fixed64 => [MapKey::U64(1), MapKey::U64(2)],
        _ => [MapKey::String("one".into()), MapKey::String("two".into())],
    };
    let [one, two] = keys;
    [(one, first), (two, second)]
}

/// A value that is not the default of its kind.
fn scalar(kind: &Kind) -> Value {
    match kind {
        Kind::Bool => Value::Bool(true),
        Kind::String | Kind::Message(_) => Value::String("text".into()),
        Kind::Bytes => Value::Bytes(vec![1, 2].into()),
        Kind::Enum(_) => Value::EnumNumber(1),
        Kind::Double => Value::F64(1.5),
        Kind::Float => Value::F32(1.5),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(3),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(3),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(3),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(3),
    }
}

/// The second entry of a list or a map: unlike the first, and no deeper than one message, or lists in lists would
/// make messages of any size.
fn second(kind: &Kind) -> Value {
    other(&shallow_single(kind))
}

/// A value for the field that goes no deeper than one message.
pub(super) fn shallow(field: &FieldDescriptor) -> Value {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => {
            let value = entry.map_entry_value_field().kind();
            Value::Map(pair(&entry.map_entry_key_field().kind(), shallow_single(&value), second(&value)).into())
        }
        kind if field.is_list() => Value::List(vec![shallow_single(&kind)]),
        kind => shallow_single(&kind),
    }
}

fn shallow_single(kind: &Kind) -> Value {
    let Kind::Message(descriptor) = kind else { return scalar(kind) };
    let mut message = DynamicMessage::new(descriptor.clone());
    let plain = |field: &FieldDescriptor| !field.is_list() && !matches!(field.kind(), Kind::Message(_));
    descriptor.fields().filter(plain).for_each(|field| message.set_field(&field, scalar(&field.kind())));
    Value::Message(message)
}

/// The value changed in its first leaf; in nothing if it has none.
pub(super) fn other(value: &Value) -> Value {
    match value {
        Value::Bool(value) => Value::Bool(!value),
        Value::I32(value) => Value::I32(value.wrapping_add(1)),
        Value::I64(value) => Value::I64(value.wrapping_add(1)),
        Value::U32(value) => Value::U32(value.wrapping_add(1)),
        Value::U64(value) => Value::U64(value.wrapping_add(1)),
        Value::F32(value) => Value::F32(value + 1.0),
        Value::F64(value) => Value::F64(value + 1.0),
        Value::EnumNumber(value) => Value::EnumNumber(value.wrapping_add(1)),
        Value::String(value) => Value::String(format!("{value}x")),
        Value::Bytes(value) => Value::Bytes([value, [9].as_slice()].concat().into()),
        Value::List(values) => Value::List(values.iter().chain(values.last()).cloned().collect()),
        Value::Map(entries) => {
            let mut entries = entries.clone();
            if let Some(value) = entries.values_mut().next() {
                *value = other(value);
            }
            Value::Map(entries)
        }
        Value::Message(message) => {
            let mut changed = message.clone();
            if let Some((field, value)) = message.fields().next() {
                changed.set_field(&field, other(value));
            }
            Value::Message(changed)
        }
    }
}
