//! The same message in another order on the wire.

use std::collections::{BTreeMap, VecDeque};

use prost_reflect::prost::encoding::{WireType, decode_key, decode_varint, encode_varint};
use prost_reflect::{Kind, MessageDescriptor};

/// The message in other bytes: fields in descending order and interleaved, entries of maps the other way round, in
/// nested messages too. Lists keep their order, so it is the same message.
#[must_use]
pub fn reordered(descriptor: &MessageDescriptor, bytes: &[u8]) -> Vec<u8> {
    let mut fields: BTreeMap<u32, VecDeque<Vec<u8>>> = BTreeMap::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let begun = rest;
        let (number, wire_type) = decode_key(&mut rest).unwrap();
        let head = begun.len() - rest.len();
        let field = descriptor.get_field(number);
        let record = match (wire_type, field.as_ref().map(|field| field.kind())) {
            (WireType::LengthDelimited, kind) => {
                let length = usize::try_from(decode_varint(&mut rest).unwrap()).unwrap();
                let (body, after) = rest.split_at(length);
                rest = after;
                let body = match kind {
                    Some(Kind::Message(nested)) => reordered(&nested, body),
                    _ => body.to_vec(),
                };
                let mut record = begun[..head].to_vec();
                encode_varint(body.len() as u64, &mut record);
                [record, body].concat()
            }
            (wire_type, _) => {
                let length = match wire_type {
                    WireType::Varint => rest.iter().position(|byte| *byte < 0x80).unwrap() + 1,
                    WireType::SixtyFourBit => 8,
                    WireType::ThirtyTwoBit => 4,
                    other => panic!("{other:?} is not written any more"),
                };
                rest = &rest[length..];
                begun[..head + length].to_vec()
            }
        };
        let records = fields.entry(number).or_default();
        match field.is_some_and(|field| field.is_map()) {
            true => records.push_front(record),
            false => records.push_back(record),
        }
    }
    let mut written = Vec::with_capacity(bytes.len());
    while fields.values().any(|records| !records.is_empty()) {
        for record in fields.values_mut().rev().filter_map(VecDeque::pop_front) {
            written.extend(record);
        }
    }
    written
}
