//! What each merge operation makes of a policy, and what it refuses.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails panics")]

use std::time::{Duration, Instant};

use prost::Message as _;
use roadstead_policy::{Class, Reason, Refusal, canonical, merge};
use roadstead_proto::api::sandbox::{
    L7Allow, L7DenyRule, L7Rule, NetworkAccessPreset as Preset, NetworkBinary, NetworkEndpoint, NetworkPolicyRule,
    SandboxPolicy,
};
use roadstead_proto::api::v1::policy_merge_operation::Operation;
use roadstead_proto::api::v1::{
    AddAllowRules, AddDenyRules, AddNetworkRule, L7RuleTarget, PolicyMergeOperation, RemoveNetworkBinary,
    RemoveNetworkEndpoint, RemoveNetworkRule,
};

fn binaries(paths: &[&str]) -> Vec<NetworkBinary> {
    paths.iter().map(|path| NetworkBinary { path: (*path).to_owned() }).collect()
}

fn endpoint(host: &str) -> NetworkEndpoint {
    NetworkEndpoint { host: host.into(), port: 443, protocol: "rest".into(), ..Default::default() }
}

fn read_only(host: &str) -> NetworkEndpoint {
    NetworkEndpoint { access: Preset::ReadOnly.into(), ..endpoint(host) }
}

fn rule(endpoints: Vec<NetworkEndpoint>, paths: &[&str]) -> NetworkPolicyRule {
    NetworkPolicyRule { name: "web".into(), endpoints, binaries: binaries(paths) }
}

fn policy(rule: NetworkPolicyRule) -> SandboxPolicy {
    SandboxPolicy { version: 1, network_policies: [("web".to_owned(), rule)].into(), ..Default::default() }
}

fn nothing() -> SandboxPolicy {
    SandboxPolicy { version: 1, ..Default::default() }
}

fn allows(method: &str, path: &str) -> L7Rule {
    L7Rule { allow: Some(L7Allow { method: method.into(), path: path.into(), ..Default::default() }) }
}

fn denies(method: &str, path: &str) -> L7DenyRule {
    L7DenyRule { method: method.into(), path: path.into(), ..Default::default() }
}

fn target(host: &str, paths: &[&str]) -> L7RuleTarget {
    L7RuleTarget {
        rule_name: "web".into(),
        host: host.into(),
        ports: vec![443],
        path: None,
        binaries: binaries(paths),
        any_binary: paths.is_empty(),
    }
}

fn add_rule(rule: NetworkPolicyRule) -> Operation {
    Operation::AddRule(AddNetworkRule { rule_name: "web".into(), rule: Some(rule) })
}

fn add_allow(target: L7RuleTarget, rules: Vec<L7Rule>) -> Operation {
    Operation::AddAllowRules(AddAllowRules { target: Some(target), rules })
}

fn add_deny(target: L7RuleTarget, deny_rules: Vec<L7DenyRule>) -> Operation {
    Operation::AddDenyRules(AddDenyRules { target: Some(target), deny_rules })
}

fn remove_rule(rule_name: &str) -> Operation {
    Operation::RemoveRule(RemoveNetworkRule { rule_name: rule_name.into() })
}

fn remove_endpoint(rule_name: &str, host: &str, port: u32) -> Operation {
    Operation::RemoveEndpoint(RemoveNetworkEndpoint { rule_name: rule_name.into(), host: host.into(), port })
}

fn remove_binary(rule_name: &str, binary_path: &str) -> Operation {
    let (rule_name, binary_path) = (rule_name.into(), binary_path.into());
    Operation::RemoveBinary(RemoveNetworkBinary { rule_name, binary_path })
}

fn all<const N: usize>(operations: [Operation; N]) -> Vec<PolicyMergeOperation> {
    operations.into_iter().map(|operation| PolicyMergeOperation { operation: Some(operation) }).collect()
}

fn merged<const N: usize>(policy: &SandboxPolicy, operations: [Operation; N]) -> Result<SandboxPolicy, Refusal> {
    let operations = all(operations);
    merge::check(&operations)?;
    merge::apply(policy, &operations)
}

/// Also that doing it twice changes no more than once, if the operation adds.
fn becomes(before: &SandboxPolicy, operation: Operation, expected: &SandboxPolicy) {
    let after = merged(before, [operation.clone()]).unwrap();
    assert_eq!(&after, expected);
    assert_eq!(canonical::hash(&after), canonical::hash(expected));
    if !matches!(operation, Operation::RemoveBinary(_) | Operation::RemoveEndpoint(_) | Operation::RemoveRule(_)) {
        assert_eq!(merged(&after, [operation]).unwrap(), after);
    }
}

fn refused(before: &SandboxPolicy, operation: Operation, field: &str, reason: Reason) {
    let refusal = merged(before, [operation]).unwrap_err();
    assert_eq!((refusal.field.as_str(), refusal.reason), (field, reason));
    assert_eq!(refusal.class(), Class::Precondition, "{refusal}");
}

fn malformed(operation: Operation, field: &str, reason: Reason) {
    let refusal = merge::check(&all([remove_rule("a"), remove_rule("b"), operation])).unwrap_err();
    assert_eq!((refusal.field, refusal.reason), (format!("merge_operations[2].{field}"), reason));
    assert_eq!(refusal.reason.class(), Class::Invalid, "{reason}");
}

#[test]
fn a_rule_is_added_under_its_name() {
    let web = rule(vec![endpoint("a.example.com")], &["/usr/bin/curl"]);
    becomes(&nothing(), add_rule(web.clone()), &policy(web.clone()));
    becomes(&nothing(), add_rule(NetworkPolicyRule { name: String::new(), ..web.clone() }), &policy(web.clone()));
    // What composition derives is not authored.
    let mut marked = web.clone();
    marked.endpoints[0].provider_credentialed = true;
    becomes(&nothing(), add_rule(marked), &policy(web));
}

#[test]
fn an_endpoint_is_added_to_a_rule_by_naming_its_binaries() {
    let (a, b) = (endpoint("a.example.com"), endpoint("b.example.com"));
    let before = policy(rule(vec![a.clone()], &["/bin/x", "/bin/y"]));
    let both = rule(vec![b.clone()], &["/bin/y", "/bin/x"]);
    becomes(&before, add_rule(both), &policy(rule(vec![a.clone(), b.clone()], &["/bin/x", "/bin/y"])));
    for paths in [&["/bin/x"][..], &["/bin/x", "/bin/z"]] {
        let field = "merge_operations[0].add_rule.rule.binaries";
        refused(&before, add_rule(rule(vec![b.clone()], paths)), field, Reason::WidensBinaries);
    }
    // Everybody may use what any binary may use; the others of the rule are not named by that.
    let open = policy(rule(vec![a.clone()], &[]));
    becomes(&open, add_rule(rule(vec![b.clone()], &[])), &policy(rule(vec![a, b.clone()], &[])));
    let field = "merge_operations[0].add_rule.rule.binaries";
    refused(&open, add_rule(rule(vec![b], &["/bin/x"])), field, Reason::WidensBinaries);
}

#[test]
fn a_binary_is_added_to_a_rule_by_naming_its_endpoints() {
    let (a, b) = (endpoint("a.example.com"), endpoint("b.example.com"));
    let before = policy(rule(vec![a.clone(), b.clone()], &["/bin/x"]));
    let named = rule(vec![b.clone(), a.clone()], &["/bin/y"]);
    becomes(&before, add_rule(named), &policy(rule(vec![a.clone(), b.clone()], &["/bin/x", "/bin/y"])));
    let field = "merge_operations[0].add_rule.rule.endpoints";
    for paths in [&["/bin/y"][..], &[]] {
        refused(&before, add_rule(rule(vec![a.clone()], paths)), field, Reason::WidensEndpoints);
    }
    let any = rule(vec![a.clone(), b], &[]);
    becomes(&before, add_rule(any.clone()), &policy(any.clone()));
    // A named binary does not narrow a rule that is open to any.
    becomes(&policy(any.clone()), add_rule(rule(vec![a.clone()], &["/bin/x"])), &policy(any));
    // Requests count as well as hosts.
    let writes = NetworkEndpoint { rules: vec![allows("GET", "/**"), allows("POST", "/**")], ..a.clone() };
    let reads = NetworkEndpoint { rules: vec![allows("GET", "/**")], ..a };
    let before = policy(rule(vec![writes], &["/bin/x"]));
    refused(&before, add_rule(rule(vec![reads], &["/bin/y"])), field, Reason::WidensEndpoints);
}

#[test]
fn a_binary_gets_each_of_several_endpoints_of_one_place_only_if_it_is_named() {
    let writes = |host: &str| NetworkEndpoint { access: Preset::ReadWrite.into(), ..endpoint(host) };
    let field = "merge_operations[0].add_rule.rule.endpoints";
    // What is denied for the added one is not denied for the second one that stands.
    let careful = NetworkEndpoint { deny_rules: vec![denies("POST", "**")], ..writes("a.example.com") };
    let before = policy(rule(vec![careful.clone(), writes("A.Example.com")], &["/bin/x"]));
    for paths in [&["/bin/y"][..], &[]] {
        refused(&before, add_rule(rule(vec![careful.clone()], paths)), field, Reason::WidensEndpoints);
    }
    let open = rule(vec![careful, writes("A.Example.com")], &["/bin/x", "/bin/y"]);
    becomes(&before, add_rule(rule(vec![writes("a.example.com")], &["/bin/y"])), &policy(open));
    // A connection that nobody sees into says nothing of requests.
    let raw = NetworkEndpoint { protocol: String::new(), ..writes("A.Example.com") };
    let before = policy(rule(vec![raw.clone(), writes("a.example.com")], &["/bin/x"]));
    refused(&before, add_rule(rule(vec![raw], &[])), field, Reason::WidensEndpoints);
}

#[test]
fn an_endpoint_that_stands_gets_the_requests_of_the_added_one_and_must_agree_in_the_rest() {
    let reads = NetworkEndpoint { rules: vec![allows("GET", "/**")], ..endpoint("A.example.com") };
    let writes = NetworkEndpoint {
        rules: vec![allows("GET", "/**"), allows("POST", "/x")],
        deny_rules: vec![denies("GET", "/secret")],
        ports: vec![443],
        port: 0,
        ..endpoint("a.example.com")
    };
    let expected =
        NetworkEndpoint { rules: writes.rules.clone(), deny_rules: writes.deny_rules.clone(), ..reads.clone() };
    becomes(
        &policy(rule(vec![reads.clone()], &[])),
        add_rule(rule(vec![writes], &[])),
        &policy(rule(vec![expected], &[])),
    );

    let before = policy(rule(vec![reads.clone()], &[]));
    let field = "merge_operations[0].add_rule.rule.endpoints[0]";
    let raw = NetworkEndpoint { protocol: String::new(), ..reads.clone() };
    refused(&before, add_rule(rule(vec![raw], &[])), field, Reason::StandsOtherwise { difference: "protocol" });
    let audited = NetworkEndpoint { enforcement: 2, ..reads.clone() };
    refused(&before, add_rule(rule(vec![audited], &[])), field, Reason::StandsOtherwise { difference: "enforcement" });

    // Another path or port is another endpoint.
    let other = NetworkEndpoint { path: "/v2/**".into(), ..reads.clone() };
    becomes(&before, add_rule(rule(vec![other.clone()], &[])), &policy(rule(vec![reads, other], &[])));
}

#[test]
fn presets_are_joined_as_what_they_stand_for() {
    let full = NetworkEndpoint { access: Preset::Full.into(), ..endpoint("a.example.com") };
    let with = |endpoint: &NetworkEndpoint| policy(rule(vec![endpoint.clone()], &[]));
    let reads = read_only("a.example.com");
    becomes(&with(&reads), add_rule(rule(vec![full.clone()], &[])), &with(&full));
    becomes(&with(&full), add_rule(rule(vec![reads.clone()], &[])), &with(&full));
    becomes(&with(&full), add_allow(target("a.example.com", &[]), vec![allows("POST", "/x")]), &with(&full));
    let written = ["GET", "HEAD", "OPTIONS"].map(|method| allows(method, "**"));
    let rules = written.into_iter().chain([allows("POST", "/x")]).collect();
    let both = NetworkEndpoint { access: 0, rules, ..reads.clone() };
    becomes(&with(&reads), add_allow(target("a.example.com", &[]), vec![allows("POST", "/x")]), &with(&both));
    becomes(&with(&both), add_rule(rule(vec![reads], &[])), &with(&both));

    let graphql = NetworkEndpoint { protocol: "graphql".into(), ..read_only("a.example.com") };
    let add = add_allow(target("a.example.com", &[]), vec![allows("POST", "/x")]);
    refused(&with(&graphql), add, "merge_operations[0].add_allow_rules.target", Reason::PresetNotRules);
}

#[test]
fn a_target_means_one_endpoint_and_names_everybody_who_has_it() {
    let ports = NetworkEndpoint { ports: vec![8443, 443], ..read_only("a.example.com") };
    let alone = NetworkEndpoint { port: 8443, ..read_only("b.example.com") };
    let v2 = NetworkEndpoint { path: "/v2/**".into(), ..read_only("a.example.com") };
    let raw = NetworkEndpoint { protocol: String::new(), port: 5432, ..endpoint("db.example.com") };
    let before = policy(rule(vec![ports.clone(), alone, v2, raw], &["/bin/x", "/bin/y"]));
    let whole = target("a.example.com", &["/bin/y", "/bin/x"]);
    let whole = L7RuleTarget { ports: vec![443, 8443], path: Some(String::new()), ..whole };
    let deny = |target: &L7RuleTarget| add_deny(target.clone(), vec![denies("GET", "/secret")]);

    let mut expected = before.clone();
    let denied = vec![denies("GET", "/secret")];
    expected.network_policies.get_mut("web").unwrap().endpoints[0].deny_rules = denied.clone();
    becomes(&before, deny(&whole), &expected);
    let mut expected = before.clone();
    expected.network_policies.get_mut("web").unwrap().endpoints[2].deny_rules = denied;
    let second =
        L7RuleTarget { host: "A.EXAMPLE.com".into(), ports: vec![443], path: Some("/v2/**".into()), ..whole.clone() };
    becomes(&before, deny(&second), &expected);

    let at = "merge_operations[0].add_deny_rules.target";
    for (target, field, reason) in [
        (L7RuleTarget { rule_name: "other".into(), ..whole.clone() }, ".rule_name", Reason::NoSuchRule),
        (L7RuleTarget { host: "c.example.com".into(), ..whole.clone() }, "", Reason::NoSuchEndpoint),
        (L7RuleTarget { ports: vec![80], ..whole.clone() }, "", Reason::NoSuchEndpoint),
        (L7RuleTarget { path: Some("/v3".into()), ..whole.clone() }, "", Reason::NoSuchEndpoint),
        (L7RuleTarget { path: None, ..whole.clone() }, "", Reason::SeveralEndpoints),
        (L7RuleTarget { ports: vec![443], ..whole.clone() }, ".ports", Reason::OtherPorts),
        (L7RuleTarget { ports: vec![443, 8443, 80], ..whole.clone() }, ".ports", Reason::OtherPorts),
        (L7RuleTarget { binaries: binaries(&["/bin/x"]), ..whole.clone() }, ".binaries", Reason::OtherBinaries),
        (L7RuleTarget { binaries: vec![], any_binary: true, ..whole.clone() }, ".binaries", Reason::OtherBinaries),
        (L7RuleTarget { host: "db.example.com".into(), ports: vec![5432], ..whole.clone() }, "", Reason::NotInspected),
    ] {
        refused(&before, deny(&target), &format!("{at}{field}"), reason);
    }
    let raw = NetworkEndpoint { protocol: String::new(), access: Preset::Full.into(), ..endpoint("a.example.com") };
    let add = add_allow(target("a.example.com", &[]), vec![allows("GET", "/")]);
    refused(&policy(rule(vec![raw], &[])), add, "merge_operations[0].add_allow_rules.target", Reason::NotInspected);
    let open = policy(rule(vec![ports], &[]));
    refused(&open, deny(&whole), &format!("{at}.binaries"), Reason::OtherBinaries);
    let empty = policy(rule(vec![endpoint("a.example.com")], &[]));
    refused(&empty, deny(&target("a.example.com", &[])), at, Reason::NothingAllowed);
}

#[test]
fn a_removed_endpoint_leaves_its_other_ports_and_takes_an_empty_rule_along() {
    let two = NetworkEndpoint { port: 443, ports: vec![443, 8443], ..endpoint("A.example.com") };
    let one = NetworkEndpoint { port: 8443, ports: vec![8443], ..two.clone() };
    let before = policy(rule(vec![two], &[]));
    becomes(&before, remove_endpoint("web", "a.example.com", 443), &policy(rule(vec![one.clone()], &[])));
    becomes(&policy(rule(vec![one], &[])), remove_endpoint("", "a.example.com", 8443), &nothing());

    // Without a rule's name, wherever it stands.
    let mut twice = policy(rule(vec![endpoint("a.example.com"), endpoint("b.example.com")], &[]));
    twice.network_policies.insert("other".into(), rule(vec![endpoint("a.example.com")], &["/bin/x"]));
    let rest = policy(rule(vec![endpoint("b.example.com")], &[]));
    becomes(&twice, remove_endpoint("", "a.example.com", 443), &rest);

    let at = "merge_operations[0].remove_endpoint";
    for (rule_name, host, port, field, reason) in [
        ("web", "c.example.com", 443, "", Reason::NoSuchEndpoint),
        ("web", "a.example.com", 80, "", Reason::NoSuchEndpoint),
        ("", "*.example.com", 443, "", Reason::NoSuchEndpoint),
        ("none", "a.example.com", 443, ".rule_name", Reason::NoSuchRule),
    ] {
        refused(&before, remove_endpoint(rule_name, host, port), &format!("{at}{field}"), reason);
    }
}

#[test]
fn a_rule_goes_by_its_name_and_with_its_last_binary() {
    let before = policy(rule(vec![endpoint("a.example.com")], &["/bin/x", "/bin/y"]));
    becomes(&before, remove_rule("web"), &nothing());
    refused(&before, remove_rule("other"), "merge_operations[0].remove_rule.rule_name", Reason::NoSuchRule);

    let one = policy(rule(vec![endpoint("a.example.com")], &["/bin/y"]));
    becomes(&before, remove_binary("web", "/bin/x"), &one);
    // Without a binary the rule would be open to any.
    becomes(&one, remove_binary("web", "/bin/y"), &nothing());
    let at = "merge_operations[0].remove_binary";
    refused(&one, remove_binary("web", "/bin/x"), &format!("{at}.binary_path"), Reason::NoSuchBinary);
    refused(&one, remove_binary("other", "/bin/x"), &format!("{at}.rule_name"), Reason::NoSuchRule);
    let open = policy(rule(vec![endpoint("a.example.com")], &[]));
    refused(&open, remove_binary("web", "/bin/x"), &format!("{at}.binary_path"), Reason::NoSuchBinary);
}

#[test]
fn each_operation_sees_what_the_ones_before_it_left_and_all_or_none_are_done() {
    let (a, b) = (read_only("a.example.com"), endpoint("b.example.com"));
    let before = policy(rule(vec![b], &["/bin/x"]));
    let after = merged(
        &before,
        [
            remove_rule("web"),
            add_rule(rule(vec![a.clone()], &[])),
            add_deny(target("a.example.com", &[]), vec![denies("GET", "/secret")]),
        ],
    );
    let denied = NetworkEndpoint { deny_rules: vec![denies("GET", "/secret")], ..a };
    assert_eq!(after.unwrap(), policy(rule(vec![denied], &[])));
    let refusal = merged(&before, [remove_rule("web"), remove_rule("web")]).unwrap_err();
    assert_eq!(refusal.field, "merge_operations[1].remove_rule.rule_name");
}

#[test]
fn an_operation_that_is_not_well_formed_is_told_with_its_field() {
    let good = || rule(vec![endpoint("a.example.com")], &["/bin/x"]);
    let named = |name: &str| Operation::AddRule(AddNetworkRule { rule_name: name.into(), rule: Some(good()) });
    let with = |endpoint: NetworkEndpoint| add_rule(rule(vec![endpoint], &[]));
    let a = "add_rule";
    malformed(named(""), "add_rule.rule_name", Reason::Missing);
    malformed(named("_provider_x"), "add_rule.rule_name", Reason::ReservedName);
    malformed(named(&"x".repeat(257)), "add_rule.rule_name", Reason::TooLong { limit: 256 });
    malformed(
        Operation::AddRule(AddNetworkRule { rule_name: "web".into(), rule: None }),
        "add_rule.rule",
        Reason::Missing,
    );
    malformed(add_rule(rule(vec![], &[])), "add_rule.rule.endpoints", Reason::Missing);
    malformed(add_rule(rule(vec![endpoint("a.b")], &["/x", " "])), "add_rule.rule.binaries[1].path", Reason::Missing);
    malformed(with(endpoint("a..b")), "add_rule.rule.endpoints[0].host", Reason::Malformed);
    malformed(with(endpoint("169.254.169.254")), "add_rule.rule.endpoints[0].host", Reason::AlwaysBlocked);
    let loopback = NetworkEndpoint { allowed_ips: vec!["127.0.0.1".into()], ..endpoint("a.b") };
    malformed(with(loopback), &format!("{a}.rule.endpoints[0].allowed_ips[0]"), Reason::AlwaysBlocked);
    let composed = add_rule(NetworkPolicyRule { name: "_provider_x".into(), ..good() });
    malformed(composed, "add_rule.rule.name", Reason::ReservedName);

    malformed(remove_endpoint("", "", 443), "remove_endpoint.host", Reason::Missing);
    malformed(remove_endpoint("", "a.b", 0), "remove_endpoint.port", Reason::PortOutOfRange);
    malformed(remove_endpoint("_provider_x", "a.b", 443), "remove_endpoint.rule_name", Reason::ReservedName);
    malformed(remove_rule(""), "remove_rule.rule_name", Reason::Missing);
    malformed(remove_rule("_provider_x"), "remove_rule.rule_name", Reason::ReservedName);
    malformed(remove_binary("", "/x"), "remove_binary.rule_name", Reason::Missing);
    malformed(remove_binary("_provider_x", "/x"), "remove_binary.rule_name", Reason::ReservedName);
    malformed(remove_binary("web", ""), "remove_binary.binary_path", Reason::Missing);

    let good = || target("a.b", &[]);
    for (target, field, reason) in [
        (None, "", Reason::Missing),
        (Some(L7RuleTarget { rule_name: String::new(), ..good() }), ".rule_name", Reason::Missing),
        (Some(L7RuleTarget { rule_name: "_provider_x".into(), ..good() }), ".rule_name", Reason::ReservedName),
        (Some(L7RuleTarget { host: String::new(), ..good() }), ".host", Reason::Missing),
        (Some(L7RuleTarget { ports: vec![], ..good() }), ".ports", Reason::Missing),
        (Some(L7RuleTarget { ports: vec![443, 0], ..good() }), ".ports", Reason::PortOutOfRange),
        (Some(L7RuleTarget { ports: vec![1; 65], ..good() }), ".ports", Reason::TooMany { what: "ports", limit: 64 }),
        (Some(L7RuleTarget { any_binary: false, ..good() }), ".binaries", Reason::BinariesOrAny),
        (Some(L7RuleTarget { binaries: binaries(&["/x"]), ..good() }), ".binaries", Reason::BinariesOrAny),
        (Some(L7RuleTarget { any_binary: false, ..target("a.b", &[""]) }), ".binaries[0].path", Reason::Missing),
    ] {
        let allow = AddAllowRules { target: target.clone(), rules: vec![allows("GET", "/")] };
        malformed(Operation::AddAllowRules(allow), &format!("add_allow_rules.target{field}"), reason);
        let deny = AddDenyRules { target, deny_rules: vec![denies("GET", "/")] };
        malformed(Operation::AddDenyRules(deny), &format!("add_deny_rules.target{field}"), reason);
    }
    malformed(add_allow(good(), vec![]), "add_allow_rules.rules", Reason::Missing);
    let payloads = [L7Rule { allow: None }, L7Rule { allow: Some(L7Allow::default()) }];
    for empty in payloads {
        let rules = vec![allows("GET", "/"), empty];
        malformed(add_allow(good(), rules), "add_allow_rules.rules[1].allow", Reason::Missing);
    }
    malformed(add_deny(good(), vec![]), "add_deny_rules.deny_rules", Reason::Missing);
    malformed(add_deny(good(), vec![L7DenyRule::default()]), "add_deny_rules.deny_rules[0]", Reason::Missing);

    let none = merge::check(&[PolicyMergeOperation::default()]).unwrap_err();
    assert_eq!((none.field.as_str(), none.reason), ("merge_operations[0]", Reason::Missing));
}

#[test]
fn a_request_is_bounded_in_operations_bytes_and_endpoints() {
    let many = vec![PolicyMergeOperation { operation: Some(remove_rule("x")) }; merge::OPERATIONS + 1];
    assert_eq!(
        merge::check(&many).unwrap_err().reason,
        Reason::TooMany { what: "operations", limit: merge::OPERATIONS }
    );
    assert_eq!(merge::check(&many[1..]), Ok(()));
    let large = all([add_deny(target("a.b", &[]), vec![denies("GET", &"x".repeat(262_144))])]);
    assert_eq!(merge::check(&large).unwrap_err().reason, Reason::TooLarge { limit: 262_144 });
    let endpoints = vec![NetworkEndpoint { protocol: String::new(), ..endpoint("a.b") }; 513];
    let crowd = all([add_rule(rule(endpoints.clone(), &[])), add_rule(rule(endpoints, &[]))]);
    assert_eq!(merge::check(&crowd).unwrap_err().reason, Reason::TooMany { what: "endpoints", limit: 1024 });
    let rules = || vec![allows("GET", "/"); 513];
    let inside = add_rule(rule(vec![NetworkEndpoint { rules: rules(), ..endpoint("a.b") }], &[]));
    let many = all([add_allow(target("a.b", &[]), rules()), inside]);
    let refusal = merge::check(&many).unwrap_err();
    assert_eq!(refusal.reason, Reason::TooMany { what: "rules on requests", limit: merge::RULES });
    assert_eq!(refusal.to_string(), "merge_operations: more than 1024 rules on requests");
    assert_eq!(merge::check(&many[1..]), Ok(()));
}

#[test]
fn the_most_that_fits_is_merged_in_bounded_time() {
    // Each added rule is looked for among all that stand.
    let small = (0..20_000).map(|at| denies(&format!("{at:x}"), "/x")).collect();
    let deep = NetworkEndpoint { deny_rules: small, ..read_only("a.example.com") };
    let before = policy(rule(vec![deep], &[]));
    assert!(before.encoded_len() > 200_000);
    let more = (0..merge::RULES).map(|at| denies(&format!("M{at}"), "/y")).collect();
    let after = merged(&before, [add_deny(target("a.example.com", &[]), more)]).unwrap();
    assert_eq!(after.network_policies["web"].endpoints[0].deny_rules.len(), 20_000 + merge::RULES);

    // So does each of many operations; a preset among the added ones is written out first.
    let small = (0..20_000).map(|at| allows(&format!("{at:x}"), "")).collect();
    let before = policy(rule(vec![NetworkEndpoint { rules: small, ..endpoint("a.example.com") }], &[]));
    assert!(before.encoded_len() > 150_000);
    let each = merge::RULES / merge::OPERATIONS;
    let more = |at: usize| (0..each).map(|rule| allows(&format!("M{at}-{rule}"), "")).collect();
    let preset = add_rule(rule(vec![read_only("a.example.com")], &[]));
    let operations = (1..merge::OPERATIONS).map(|at| add_allow(target("a.example.com", &[]), more(at))).chain([preset]);
    let operations = operations.map(|operation| PolicyMergeOperation { operation: Some(operation) });
    let operations = operations.collect::<Vec<_>>();
    assert_eq!(merge::check(&operations), Ok(()));
    let started = Instant::now();
    let after = merge::apply(&before, &operations).unwrap();
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    assert_eq!(after.network_policies["web"].endpoints[0].rules.len(), 20_000 + (merge::OPERATIONS - 1) * each + 3);

    // Each operation goes through all endpoints of a rule.
    let ports = |at: u32| NetworkEndpoint { ports: (1..32).chain([100 + at]).collect(), ..endpoint("a.example.com") };
    let before = policy(rule((0..1024).map(ports).collect(), &[]));
    let add = |at: usize| add_rule(rule(vec![endpoint(&format!("h{at}.example.com"))], &[]));
    let operations = (0..merge::OPERATIONS).map(|at| PolicyMergeOperation { operation: Some(add(at)) });
    let operations = operations.collect::<Vec<_>>();
    assert_eq!(merge::check(&operations), Ok(()));
    assert_eq!(merge::apply(&before, &operations).unwrap().network_policies["web"].endpoints.len(), 1124);
}
