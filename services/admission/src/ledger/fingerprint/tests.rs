use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use prost::Message as _;
use prost_reflect::{Kind, MessageDescriptor};
use roadstead_proto::api::v1;
use roadstead_proto::sealing::SecretKey;
use roadstead_testkit::variation::{self, Change};

use super::*;

fn of(method: Method, message: &impl prost::Message) -> Fingerprint {
    Fingerprint::of(method, &message.encode_to_vec()).unwrap()
}

/// The 30 mutations of the API that take a request id, served yet or not.
fn mutations() -> Vec<Method> {
    let exec = [Method::ExecSandbox, Method::ExecSandboxInteractive];
    let mutations = Method::ALL.iter().filter(|method| method.has_request_id() && !exec.contains(method));
    mutations.copied().collect()
}

/// Each with every field set, and again for each member of its oneofs.
fn bases() -> impl Iterator<Item = (Method, DynamicMessage)> {
    mutations()
        .into_iter()
        .flat_map(|method| variation::full(&method.input_descriptor()).into_iter().map(move |base| (method, base)))
}

#[test]
fn no_two_requests_that_differ_in_one_thing_have_the_same_fingerprint() {
    assert_eq!(mutations().len(), 30);
    let mut compared = 0;
    for method in mutations() {
        let mut made = HashSet::new();
        for base in variation::full(&method.input_descriptor()) {
            let mut seen = HashMap::from([(of(method, &base).0, "the base".to_owned())]);
            // What an earlier base has shown is not shown again.
            let new = &mut |path: &str, what| path != REQUEST_ID && made.insert((path.to_owned(), what));
            for Change { path, what, message } in variation::changes_at(&base, new) {
                let change = format!("{path}: {what}");
                if let Some(before) = seen.insert(of(method, &message).0, change.clone()) {
                    panic!("{method}: {change} is to the ledger the same as {before}");
                }
            }
            compared += seen.len();
        }
        for leaf in leaves(&method.input_descriptor(), &mut Vec::new()) {
            assert!(
                leaf == REQUEST_ID || made.iter().any(|(path, _)| *path == leaf),
                "{method}: {leaf} stayed as it is"
            );
        }
    }
    assert!(compared > 1500, "{compared}");
}

/// Paths of all fields, none within its own type.
fn leaves(descriptor: &MessageDescriptor, around: &mut Vec<String>) -> Vec<String> {
    if around.iter().any(|name| name == descriptor.full_name()) {
        return Vec::new();
    }
    around.push(descriptor.full_name().to_owned());
    let mut leaves = Vec::new();
    for field in descriptor.fields() {
        leaves.push(field.name().to_owned());
        let kind = match field.kind() {
            Kind::Message(entry) if field.is_map() => entry.map_entry_value_field().kind(),
            kind => kind,
        };
        if let Kind::Message(nested) = kind {
            leaves.extend(self::leaves(&nested, around).iter().map(|path| format!("{}.{path}", field.name())));
        }
    }
    around.pop();
    leaves
}

#[test]
fn another_order_on_the_wire_is_the_same_request() {
    for (method, base) in bases() {
        let bytes = base.encode_to_vec();
        let other = variation::reordered(&method.input_descriptor(), &bytes);
        assert_ne!(other, bytes);
        assert_eq!(Fingerprint::of(method, &other), Fingerprint::of(method, &bytes), "{method}: {base:?}");
    }
}

#[test]
fn another_request_id_is_the_same_request() {
    for (method, base) in bases() {
        let mut other = base.clone();
        other.set_field_by_name(REQUEST_ID, Value::String("another".into()));
        assert_ne!(other, base);
        let mut without = base.clone();
        without.clear_field_by_name(REQUEST_ID);
        for same in [other, without] {
            assert_eq!(of(method, &same), of(method, &base), "{method}");
        }
    }
}

#[test]
fn one_request_to_two_methods_is_two_requests() {
    let empty = |method: &Method| Fingerprint::of(*method, b"").unwrap().0;
    assert_eq!(mutations().iter().map(empty).collect::<HashSet<_>>().len(), 30);
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
