//! Free-form structs must have one meaning and one encoding.

use prost_types::{Struct, Value, value::Kind};

/// Whether every value has a kind and every number is finite. Depth is bounded by the decoder.
pub(crate) fn is_canonical(structure: &Struct) -> bool {
    structure.fields.values().all(is_canonical_value)
}

fn is_canonical_value(value: &Value) -> bool {
    match &value.kind {
        None => false,
        Some(Kind::NumberValue(number)) => number.is_finite(),
        Some(Kind::StructValue(inner)) => is_canonical(inner),
        Some(Kind::ListValue(list)) => list.values.iter().all(is_canonical_value),
        Some(Kind::NullValue(_) | Kind::StringValue(_) | Kind::BoolValue(_)) => true,
    }
}
