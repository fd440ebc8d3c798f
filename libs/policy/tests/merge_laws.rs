//! Laws of merging, over random policies and operations of a small world: what a policy gives is worked out pair by
//! pair, by a reading of policies that shares no code with merging.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails panics")]

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use prost::Message as _;
use roadstead_policy::{canonical, check, merge};
use roadstead_proto::api::sandbox::{
    L7Allow, L7DenyRule, L7Rule, NetworkAccessPreset as Preset, NetworkBinary, NetworkEndpoint, NetworkPolicyRule,
    SandboxPolicy,
};
use roadstead_proto::api::v1::policy_merge_operation::Operation;
use roadstead_proto::api::v1::{
    AddAllowRules, AddDenyRules, AddNetworkRule, L7RuleTarget, PolicyMergeOperation, RemoveNetworkBinary,
    RemoveNetworkEndpoint, RemoveNetworkRule,
};

const BINARIES: [&str; 3] = ["/bin/x", "/bin/y", "/bin/z"];
const METHODS: [&str; 4] = ["GET", "HEAD", "POST", "DELETE"];

fn name() -> impl Strategy<Value = String> {
    select(vec!["one", "two"]).prop_map(str::to_owned)
}

fn host() -> impl Strategy<Value = String> {
    select(vec!["a.example.com", "b.example.com", "A.Example.com"]).prop_map(str::to_owned)
}

fn some_ports() -> impl Strategy<Value = Vec<u32>> {
    subsequence(vec![443_u32, 8443], 1..=2)
}

fn some_binaries() -> impl Strategy<Value = Vec<NetworkBinary>> {
    let named = |path: &str| NetworkBinary { path: path.into() };
    subsequence(BINARIES.to_vec(), 0..=2).prop_map(move |paths| paths.into_iter().map(named).collect())
}

fn some_rules(least: usize) -> impl Strategy<Value = Vec<L7Rule>> {
    let rule = |method: &str| L7Rule {
        allow: Some(L7Allow { method: method.into(), path: "**".into(), ..Default::default() }),
    };
    subsequence(METHODS.to_vec(), least..=2).prop_map(move |methods| methods.into_iter().map(rule).collect())
}

fn some_denials(least: usize) -> impl Strategy<Value = Vec<L7DenyRule>> {
    let rule = |method: &str| L7DenyRule { method: method.into(), path: "**".into(), ..Default::default() };
    subsequence(METHODS.to_vec(), least..=2).prop_map(move |methods| methods.into_iter().map(rule).collect())
}

prop_compose! {
    fn endpoint()(
        host in host(),
        ports in some_ports(),
        inspected in prop::bool::weighted(0.9),
        path in select(vec!["", "", "/v2/**"]),
        access in select(vec![Preset::Unspecified, Preset::Unspecified, Preset::ReadOnly, Preset::ReadWrite, Preset::Full]),
        rules in some_rules(0),
        deny_rules in some_denials(0),
        mark in any::<bool>(),
    ) -> NetworkEndpoint {
        let preset = access != Preset::Unspecified;
        NetworkEndpoint {
            host,
            port: if ports.len() == 1 { ports[0] } else { 0 },
            ports: if ports.len() == 1 { Vec::new() } else { ports },
            protocol: if inspected { "rest".into() } else { String::new() },
            path: path.into(),
            access: access.into(),
            rules: if preset || !inspected { Vec::new() } else { rules },
            deny_rules: if preset { deny_rules } else { Vec::new() },
            provider_credentialed: mark,
            ..Default::default()
        }
    }
}

fn rule() -> impl Strategy<Value = NetworkPolicyRule> {
    (prop::collection::vec(endpoint(), 1..4), some_binaries()).prop_map(|(endpoints, binaries)| NetworkPolicyRule {
        endpoints,
        binaries,
        ..Default::default()
    })
}

fn policy() -> impl Strategy<Value = SandboxPolicy> {
    prop::collection::btree_map(name(), rule(), 0..3)
        .prop_map(|network_policies| canonical::authored(SandboxPolicy { network_policies, ..Default::default() }))
}

/// A target that means an endpoint of `policy` more often than not.
fn target(policy: &SandboxPolicy) -> BoxedStrategy<L7RuleTarget> {
    let meant = policy.network_policies.iter().flat_map(|(name, rule)| {
        rule.endpoints.iter().map(|endpoint| L7RuleTarget {
            rule_name: name.clone(),
            host: endpoint.host.clone(),
            ports: ports(endpoint).into_iter().collect(),
            path: Some(endpoint.path.clone()),
            binaries: rule.binaries.clone(),
            any_binary: rule.binaries.is_empty(),
        })
    });
    let meant = meant.collect::<Vec<_>>();
    let random = (name(), host(), some_ports(), some_binaries()).prop_map(|(rule_name, host, ports, binaries)| {
        L7RuleTarget { rule_name, host, ports, path: None, any_binary: binaries.is_empty(), binaries }
    });
    if meant.is_empty() {
        return random.boxed();
    }
    let narrowed = (select(meant.clone()), some_binaries(), some_ports()).prop_map(|(meant, binaries, ports)| {
        L7RuleTarget { any_binary: binaries.is_empty(), binaries, ports, ..meant }
    });
    prop_oneof![1 => random, 1 => narrowed, 2 => select(meant)].boxed()
}

fn operation(policy: &SandboxPolicy) -> impl Strategy<Value = Operation> + use<> {
    let binary = select(BINARIES.to_vec());
    prop_oneof![
        4 => (name(), rule())
            .prop_map(|(rule_name, rule)| Operation::AddRule(AddNetworkRule { rule_name, rule: Some(rule) })),
        1 => (prop_oneof![Just(String::new()), name()], host(), select(vec![443_u32, 8443]))
            .prop_map(|(rule_name, host, port)| Operation::RemoveEndpoint(RemoveNetworkEndpoint { rule_name, host, port })),
        1 => name().prop_map(|rule_name| Operation::RemoveRule(RemoveNetworkRule { rule_name })),
        1 => (name(), binary).prop_map(|(rule_name, path)| {
            Operation::RemoveBinary(RemoveNetworkBinary { rule_name, binary_path: path.into() })
        }),
        2 => (target(policy), some_denials(1)).prop_map(|(target, deny_rules)| {
            Operation::AddDenyRules(AddDenyRules { target: Some(target), deny_rules })
        }),
        2 => (target(policy), some_rules(1))
            .prop_map(|(target, rules)| Operation::AddAllowRules(AddAllowRules { target: Some(target), rules })),
    ]
}

fn case(most: usize) -> impl Strategy<Value = (SandboxPolicy, Vec<PolicyMergeOperation>)> {
    policy().prop_flat_map(move |policy| {
        let operation = operation(&policy).prop_map(|operation| PolicyMergeOperation { operation: Some(operation) });
        (Just(policy), prop::collection::vec(operation, 1..=most))
    })
}

fn ports(endpoint: &NetworkEndpoint) -> BTreeSet<u32> {
    if endpoint.ports.is_empty() { [endpoint.port].into() } else { endpoint.ports.iter().copied().collect() }
}

/// Who may send what where: binary, host, port, path, method. Requests that nobody sees into have the method `raw`.
type Given = BTreeSet<(&'static str, String, u32, String, &'static str)>;

fn given_by_rule(rule: &NetworkPolicyRule) -> Given {
    let mut given = Given::new();
    for endpoint in &rule.endpoints {
        let denied = |method: &str| endpoint.deny_rules.iter().any(|rule| rule.method == method);
        let preset: &[&str] = match endpoint.access() {
            Preset::Unspecified => &[],
            Preset::ReadOnly => &["GET", "HEAD"],
            Preset::ReadWrite => &["GET", "HEAD", "POST"],
            Preset::Full => &METHODS,
        };
        let listed = |method: &str| endpoint.rules.iter().any(|rule| rule.allow.as_ref().unwrap().method == method);
        let mut methods: Vec<&'static str> = METHODS
            .into_iter()
            .filter(|method| (preset.contains(method) || listed(method)) && !denied(method))
            .collect();
        if endpoint.protocol.is_empty() {
            methods = vec!["raw"];
        }
        let named = |binary: &str| rule.binaries.is_empty() || rule.binaries.iter().any(|own| own.path == binary);
        // One that no policy names stands for all of these.
        for binary in BINARIES.into_iter().chain(["/bin/other"]).filter(|binary| named(binary)) {
            for port in ports(endpoint) {
                let host = endpoint.host.to_lowercase();
                given.extend(methods.iter().map(|method| (binary, host.clone(), port, endpoint.path.clone(), *method)));
            }
        }
    }
    given
}

fn given(policy: &SandboxPolicy) -> Given {
    policy.network_policies.values().flat_map(given_by_rule).collect()
}

/// What an operation says that it gives.
fn named(operation: &Operation, path: Option<&String>) -> Given {
    match operation {
        Operation::AddRule(add) => given_by_rule(add.rule.as_ref().unwrap()),
        Operation::AddAllowRules(add) => {
            let target = add.target.as_ref().unwrap();
            given_by_rule(&NetworkPolicyRule {
                endpoints: vec![NetworkEndpoint {
                    host: target.host.clone(),
                    ports: target.ports.clone(),
                    path: path.cloned().unwrap_or_default(),
                    protocol: "rest".into(),
                    rules: add.rules.clone(),
                    ..Default::default()
                }],
                binaries: target.binaries.clone(),
                ..Default::default()
            })
        }
        _ => Given::new(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn nothing_is_given_that_the_policy_did_not_give_and_the_operation_does_not_name(
        (before, operations) in case(1)
    ) {
        prop_assert_eq!(merge::check(&operations), Ok(()));
        let Ok(after) = merge::apply(&before, &operations) else { return Ok(()) };
        let operation = operations[0].operation.as_ref().unwrap();
        let (had, has) = (given(&before), given(&after));
        // A target may leave out the path of the endpoint that it means.
        let paths = ["".to_owned(), "/v2/**".to_owned()];
        let named: Given = paths.iter().flat_map(|path| named(operation, Some(path))).collect();
        let new: Given = has.difference(&had).filter(|pair| !named.contains(*pair)).cloned().collect();
        prop_assert!(new.is_empty(), "{:?}", new);
        // And only what takes away takes away: a denial, a removal, or a denial that comes with a rule.
        let lost: Given = had.difference(&has).cloned().collect();
        let may_lose = match operation {
            Operation::AddAllowRules(_) => false,
            Operation::AddRule(add) => add.rule.iter().flat_map(|rule| &rule.endpoints).any(|one| !one.deny_rules.is_empty()),
            _ => true,
        };
        prop_assert!(may_lose || lost.is_empty(), "{:?}", lost);
    }

    #[test]
    fn what_an_added_rule_names_is_given((before, operations) in case(1)) {
        let Some(Operation::AddRule(add)) = &operations[0].operation else { return Ok(()) };
        let Ok(after) = merge::apply(&before, &operations) else { return Ok(()) };
        let mut rule = add.rule.clone().unwrap();
        // Denials of either side win, so requests are compared where there are none.
        let denies = |endpoint: &NetworkEndpoint| !endpoint.deny_rules.is_empty();
        prop_assume!(!rule.endpoints.iter().chain(after.network_policies.values().flat_map(|rule| &rule.endpoints)).any(denies));
        rule.endpoints.iter_mut().for_each(|endpoint| endpoint.deny_rules.clear());
        prop_assert!(given_by_rule(&rule).is_subset(&given(&after)));
    }

    #[test]
    fn an_addition_done_twice_is_done_once((before, operations) in case(1)) {
        let adds = matches!(
            operations[0].operation,
            Some(Operation::AddRule(_) | Operation::AddAllowRules(_) | Operation::AddDenyRules(_))
        );
        let Ok(once) = merge::apply(&before, &operations) else { return Ok(()) };
        match merge::apply(&once, &operations) {
            Ok(twice) => prop_assert!(!adds || canonical::hash(&twice) == canonical::hash(&once), "{:?}", twice),
            Err(refused) => prop_assert!(!adds, "{}", refused),
        }
    }

    #[test]
    fn many_operations_are_as_one_after_the_other((before, operations) in case(5)) {
        let mut one_by_one = Ok(before.clone());
        for (index, operation) in operations.iter().enumerate() {
            one_by_one = one_by_one.and_then(|policy| {
                let at = |field: String| field.replacen("[0]", &format!("[{index}]"), 1);
                merge::apply(&policy, std::slice::from_ref(operation)).map_err(|refusal| (at(refusal.field), refusal.reason))
            });
        }
        let together = merge::apply(&before, &operations).map_err(|refusal| (refusal.field, refusal.reason));
        prop_assert_eq!(together, one_by_one);
    }

    #[test]
    fn a_merged_policy_is_canonical_and_as_good_as_a_whole_one((before, operations) in case(5)) {
        let Ok(after) = merge::apply(&before, &operations) else { return Ok(()) };
        prop_assert_eq!(&canonical::authored(after.clone()), &after);
        let wire = SandboxPolicy::decode(after.encode_to_vec().as_slice()).unwrap();
        prop_assert_eq!(canonical::hash(&wire), canonical::hash(&after));
        prop_assert!(after.network_policies.values().all(|rule| !rule.endpoints.is_empty()));
        // The only rule of a whole policy that a merge cannot keep by itself is the one between rules.
        let attached = BTreeSet::new();
        if let Err(refused) = check::policy(&after, check::Scope::Sandbox { attached: &attached }) {
            prop_assert!(matches!(refused.reason, roadstead_policy::Reason::Ambiguous { .. }), "{}", refused);
        }
    }
}

proptest! {
    #[test]
    fn bytes_that_are_some_request_never_make_it_fall_over(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        before in policy(),
    ) {
        let Ok(operation) = PolicyMergeOperation::decode(bytes.as_slice()) else { return Ok(()) };
        let operations = [operation];
        _ = merge::check(&operations);
        _ = merge::apply(&before, &operations);
    }
}
