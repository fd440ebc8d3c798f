use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, prost::Message as _};

use super::*;

/// The types that protobuf describes itself with have all that messages can have but maps.
fn type_named(name: &str) -> MessageDescriptor {
    DescriptorPool::global().get_message_by_name(name).unwrap()
}

fn struct_type() -> MessageDescriptor {
    type_named("google.protobuf.Struct")
}

#[test]
fn full_messages_show_each_member_of_each_oneof_and_end() {
    let shown = full(&type_named("google.protobuf.Value"));
    let members = shown.iter().map(|message| message.fields().next().unwrap().0.name().to_owned());
    let mut members = members.collect::<Vec<_>>();
    members.sort_unstable();
    members.dedup();
    assert_eq!(members, ["bool_value", "list_value", "null_value", "number_value", "string_value", "struct_value"]);
    assert!(full(&struct_type()).len() >= 4);
}

#[test]
fn each_change_is_another_message() {
    for descriptor in [struct_type(), type_named("google.protobuf.FieldMask"), type_named("google.protobuf.Type")] {
        for base in full(&descriptor) {
            let changes = changes(&base);
            assert!(changes.len() > 4, "{changes:?}");
            for (at, change) in changes.iter().enumerate() {
                assert_ne!(change.message, base, "{}: {}", change.path, change.what);
                let before = changes[..at].iter().find(|before| before.message == change.message);
                assert!(before.is_none(), "{change:?} is {before:?}");
            }
        }
    }
}

#[test]
fn another_order_is_the_same_message_in_other_bytes() {
    for base in full(&struct_type()) {
        let bytes = base.encode_to_vec();
        let other = reordered(&struct_type(), &bytes);
        assert_ne!(other, bytes);
        assert_eq!(DynamicMessage::decode(struct_type(), other.as_slice()).unwrap(), base);
    }
}
