//! The canonical form of a policy and its hash.
//!
//! The canonical form is the protobuf encoding with fields in order of number and maps in order of key, at every
//! level: the generated types and `google.protobuf.Struct` keep maps ordered and the encoder writes fields in order,
//! each with its length. Numbers in a struct are kept bit by bit; [`crate::check`] admits only finite ones.

use prost::Message as _;
use roadstead_proto::api::sandbox::{NetworkEndpoint, SandboxPolicy};

use crate::digest;

/// Rules of this prefix are composed from providers; nobody may author one.
pub const RESERVED_PREFIX: &str = "_provider_";

/// The policy as authored: without the marks that composition derives.
#[must_use]
pub fn authored(mut policy: SandboxPolicy) -> SandboxPolicy {
    for endpoint in endpoints_mut(&mut policy) {
        endpoint.provider_credentialed = false;
        endpoint.token_grant_owner.clear();
    }
    policy
}

/// What a supervisor's sync brings, as authored: rules composed from providers are taken out as well.
#[must_use]
pub fn synced(mut policy: SandboxPolicy) -> SandboxPolicy {
    policy.network_policies.retain(|key, _| !key.starts_with(RESERVED_PREFIX));
    authored(policy)
}

/// Lower-case hexadecimal SHA-256 of the canonical form. Derived marks do not take part: they follow from the rest,
/// so a policy has one hash from the write to the snapshot.
#[must_use]
pub fn hash(policy: &SandboxPolicy) -> String {
    let derived = |endpoint: &NetworkEndpoint| endpoint.provider_credentialed || !endpoint.token_grant_owner.is_empty();
    if endpoints(policy).any(derived) {
        digest::hex(&authored(policy.clone()).encode_to_vec())
    } else {
        digest::hex(&policy.encode_to_vec())
    }
}

pub(crate) fn endpoints(policy: &SandboxPolicy) -> impl Iterator<Item = &NetworkEndpoint> {
    policy.network_policies.values().flat_map(|rule| &rule.endpoints)
}

pub(crate) fn endpoints_mut(policy: &mut SandboxPolicy) -> impl Iterator<Item = &mut NetworkEndpoint> {
    policy.network_policies.values_mut().flat_map(|rule| &mut rule.endpoints)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost_types::{ListValue, Struct, Value, value::Kind};
    use roadstead_proto::api::sandbox::{NetworkMiddlewareConfig, NetworkPolicyRule};

    use super::*;

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Kind::NullValue(0)),
            any::<bool>().prop_map(Kind::BoolValue),
            "[a-z]{0,4}".prop_map(Kind::StringValue),
            (-1e9..1e9f64).prop_map(Kind::NumberValue),
        ]
        .prop_map(|kind| Value { kind: Some(kind) });
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::btree_map("[a-z]{0,3}", inner.clone(), 0..4)
                    .prop_map(|fields| Kind::StructValue(Struct { fields })),
                proptest::collection::vec(inner, 0..4).prop_map(|values| Kind::ListValue(ListValue { values })),
            ]
            .prop_map(|kind| Value { kind: Some(kind) })
        })
    }

    fn with_config(config: Vec<(String, Value)>) -> SandboxPolicy {
        let config = Some(Struct { fields: config.into_iter().collect() });
        let middleware = NetworkMiddlewareConfig { config, ..Default::default() };
        SandboxPolicy { network_middlewares: [("m".to_owned(), middleware)].into(), ..Default::default() }
    }

    /// The bytes with the entries of the outermost map written in another order.
    fn reordered(policies: &[(String, NetworkPolicyRule)]) -> Vec<u8> {
        policies
            .iter()
            .map(|(key, rule)| SandboxPolicy {
                network_policies: [(key.clone(), rule.clone())].into(),
                ..Default::default()
            })
            .flat_map(|one| one.encode_to_vec())
            .collect()
    }

    proptest! {
        #[test]
        fn the_order_of_entries_never_matters(
            mut config in proptest::collection::vec(("[a-z]{1,3}", any_value()), 0..6),
            keys in proptest::collection::btree_set("[a-z]{1,4}", 0..6),
        ) {
            config.dedup_by(|a, b| a.0 == b.0);
            config.sort_by(|a, b| a.0.cmp(&b.0));
            config.dedup_by(|a, b| a.0 == b.0);
            let forward = hash(&with_config(config.clone()));
            config.reverse();
            prop_assert_eq!(forward, hash(&with_config(config)));

            let rules = keys.into_iter().map(|key| {
                (key.clone(), NetworkPolicyRule { name: key, ..Default::default() })
            }).collect::<Vec<_>>();
            let backward = rules.iter().rev().cloned().collect::<Vec<_>>();
            let decode = |bytes: Vec<u8>| SandboxPolicy::decode(bytes.as_slice()).unwrap();
            prop_assert_eq!(hash(&decode(reordered(&rules))), hash(&decode(reordered(&backward))));
        }

        #[test]
        fn the_hash_survives_the_wire(config in proptest::collection::vec(("[a-z]{1,3}", any_value()), 0..6)) {
            let policy = with_config(config);
            let back = SandboxPolicy::decode(policy.encode_to_vec().as_slice()).unwrap();
            prop_assert_eq!(hash(&policy), hash(&back));
        }

        #[test]
        fn different_values_have_different_hashes(a in any_value(), b in any_value()) {
            let of = |value: &Value| hash(&with_config(vec![("k".into(), value.clone())]));
            prop_assert_eq!(a == b, of(&a) == of(&b));
        }
    }

    #[test]
    fn the_form_is_pinned() {
        let policy = SandboxPolicy {
            version: 1,
            network_policies: [("web".to_owned(), NetworkPolicyRule { name: "web".into(), ..Default::default() })]
                .into(),
            ..Default::default()
        };
        assert_eq!(policy.encode_to_vec(), b"\x08\x01\x2a\x0c\x0a\x03web\x12\x05\x0a\x03web");
        assert_eq!(hash(&SandboxPolicy::default()), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    #[test]
    fn derived_marks_do_not_change_the_hash_and_are_not_authored() {
        let endpoint = NetworkEndpoint { host: "api.example.com".into(), port: 443, ..Default::default() };
        let rule = |endpoint| NetworkPolicyRule { endpoints: vec![endpoint], ..Default::default() };
        let plain = SandboxPolicy {
            network_policies: [("web".to_owned(), rule(endpoint.clone()))].into(),
            ..Default::default()
        };
        let marked = NetworkEndpoint { provider_credentialed: true, token_grant_owner: "x".into(), ..endpoint };
        let composed =
            SandboxPolicy { network_policies: [("web".to_owned(), rule(marked.clone()))].into(), ..Default::default() };
        assert_eq!(hash(&plain), hash(&composed));
        assert_eq!(authored(composed.clone()), plain);

        let mut with_composed_rule = composed;
        with_composed_rule.network_policies.insert("_provider_git".into(), rule(marked));
        assert_eq!(synced(with_composed_rule), plain);
    }
}
