//! The rules that a policy must keep, at its own write and again when it is composed.

use std::collections::BTreeSet;

use prost::Message as _;
use roadstead_proto::api::sandbox::{NetworkPolicyRule, SandboxPolicy};

use crate::canonical::RESERVED_PREFIX;
use crate::refusal::{Path, Reason, Refusal};
use crate::{ambiguity, budget, endpoint, filesystem, structure};

const NAME_BYTES: usize = 256;

/// Whose policy it is.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// Of one sandbox, with the names of the providers attached to it.
    Sandbox { attached: &'a BTreeSet<String> },
    /// Of every sandbox.
    Global,
}

/// Checks an authored policy as a whole.
///
/// # Errors
/// The first rule that is broken, with its field.
pub fn policy(policy: &SandboxPolicy, scope: Scope<'_>) -> Result<(), Refusal> {
    let root = Path::Root("policy");
    if policy.encoded_len() > budget::POLICY_BYTES {
        return Err(root.refuse(Reason::TooLarge { limit: budget::POLICY_BYTES }));
    }
    if let Some(filesystem) = &policy.filesystem {
        filesystem::check(filesystem, &root.field("filesystem"))?;
    }
    if let Some(process) = &policy.process {
        filesystem::check_identity(process, &root.field("process"))?;
    }
    check_middlewares(policy, &root.field("network_middlewares"))?;
    check_rules(policy, scope, &root.field("network_policies"))
}

fn check_middlewares(policy: &SandboxPolicy, at: &Path<'_>) -> Result<(), Refusal> {
    for (key, middleware) in &policy.network_middlewares {
        let at = at.key(key);
        name(key, &at)?;
        if middleware.config.as_ref().is_some_and(|config| !structure::is_canonical(config)) {
            return Err(at.field("config").refuse(Reason::StructNotCanonical));
        }
    }
    Ok(())
}

fn check_rules(policy: &SandboxPolicy, scope: Scope<'_>, at: &Path<'_>) -> Result<(), Refusal> {
    let count = policy.network_policies.values().map(|rule| rule.endpoints.len()).sum();
    at.at_most_of("endpoints", count, budget::ENDPOINTS)?;
    for (key, rule) in &policy.network_policies {
        check_rule(key, rule, scope, &at.key(key))?;
    }
    if budget::bound_endpoint_bytes(policy) > budget::BOUND_ENDPOINT_BYTES {
        return Err(at.refuse(Reason::TooLarge { limit: budget::BOUND_ENDPOINT_BYTES }));
    }
    ambiguity::check(policy, at)
}

fn check_rule(key: &str, rule: &NetworkPolicyRule, scope: Scope<'_>, at: &Path<'_>) -> Result<(), Refusal> {
    name(key, at)?;
    if rule.name.starts_with(RESERVED_PREFIX) {
        return Err(at.field("name").refuse(Reason::ReservedName));
    }
    for (index, endpoint) in rule.endpoints.iter().enumerate() {
        let endpoints = at.field("endpoints");
        let at = endpoints.index(index);
        endpoint::check(endpoint, &at)?;
        let Some(binding) = &endpoint.credential_binding else { continue };
        let at = at.field("credential_binding");
        match scope {
            Scope::Global => return Err(at.refuse(Reason::BindingInGlobalPolicy)),
            Scope::Sandbox { attached } if !attached.contains(&binding.provider) => {
                return Err(at.field("provider").refuse(Reason::ProviderNotAttached));
            }
            Scope::Sandbox { .. } => {}
        }
    }
    Ok(())
}

/// Checks the name under which a rule or a middleware stands.
pub(crate) fn name(key: &str, at: &Path<'_>) -> Result<(), Refusal> {
    if key.is_empty() {
        return Err(at.refuse(Reason::Missing));
    }
    if key.starts_with(RESERVED_PREFIX) {
        return Err(at.refuse(Reason::ReservedName));
    }
    at.at_most(key, NAME_BYTES)
}

#[cfg(test)]
mod tests {
    use prost_types::{Struct, Value, value::Kind};
    use roadstead_proto::api::sandbox::{
        FilesystemPolicy, NetworkCredentialBinding, NetworkEndpoint, NetworkMiddlewareConfig, NetworkTlsMode,
        ProcessPolicy,
    };

    use super::*;
    use crate::Class;

    fn endpoint(host: &str) -> NetworkEndpoint {
        NetworkEndpoint { host: host.into(), port: 443, protocol: "rest".into(), ..Default::default() }
    }

    fn bound(provider: &str) -> NetworkEndpoint {
        let credential_binding = Some(NetworkCredentialBinding { provider: provider.into() });
        NetworkEndpoint { credential_binding, ..endpoint("api.example.com") }
    }

    fn rules(endpoints: Vec<NetworkEndpoint>) -> SandboxPolicy {
        rules_named("web", endpoints)
    }

    fn rules_named(name: &str, endpoints: Vec<NetworkEndpoint>) -> SandboxPolicy {
        let rule = NetworkPolicyRule { endpoints, ..Default::default() };
        SandboxPolicy { network_policies: [(name.to_owned(), rule)].into(), ..Default::default() }
    }

    fn verdict(candidate: &SandboxPolicy) -> Result<(), Refusal> {
        let attached = ["github".to_owned()].into();
        policy(candidate, Scope::Sandbox { attached: &attached })
    }

    fn reason(candidate: &SandboxPolicy) -> Reason {
        verdict(candidate).unwrap_err().reason
    }

    #[test]
    fn a_plain_policy_passes() {
        let mut candidate = rules(vec![endpoint("*.example.com"), bound("github")]);
        candidate.network_policies.get_mut("web").unwrap().endpoints[0].host = "other.example.org".into();
        candidate.filesystem = Some(FilesystemPolicy {
            include_workdir: true,
            read_only: vec!["/usr".into()],
            read_write: vec!["/sandbox".into(), "/tmp".into()],
        });
        candidate.process = Some(ProcessPolicy { run_as_user: "sandbox".into(), run_as_group: "sandbox".into() });
        assert_eq!(verdict(&candidate), Ok(()));
        assert_eq!(verdict(&SandboxPolicy::default()), Ok(()));
    }

    #[test]
    fn a_policy_over_its_budget_is_refused_with_the_limit() {
        let candidate =
            rules_named("web", vec![NetworkEndpoint { path: format!("/{}", "x".repeat(262_144)), ..endpoint("a.b") }]);
        let refusal = verdict(&candidate).unwrap_err();
        assert_eq!(refusal.to_string(), "policy: larger than 262144 bytes");
        assert_eq!(refusal.class(), Class::Invalid);
    }

    #[test]
    fn composed_names_are_reserved() {
        assert_eq!(reason(&rules_named("_provider_git", vec![])), Reason::ReservedName);
        let mut candidate = rules(vec![]);
        candidate.network_policies.get_mut("web").unwrap().name = "_provider_x".into();
        let refusal = verdict(&candidate).unwrap_err();
        assert_eq!(
            (refusal.field.as_str(), refusal.reason),
            ("policy.network_policies[web].name", Reason::ReservedName)
        );
    }

    #[test]
    fn endpoints_have_a_host_and_ports_in_range() {
        assert_eq!(reason(&rules(vec![endpoint("")])), Reason::Missing);
        assert_eq!(reason(&rules(vec![endpoint("a/b.example.com")])), Reason::Malformed);
        assert_eq!(reason(&rules(vec![endpoint("a..example.com")])), Reason::Malformed);
        assert_eq!(reason(&rules(vec![endpoint("*.com")])), Reason::WildcardTooBroad);
        assert_eq!(reason(&rules(vec![endpoint("**")])), Reason::WildcardTooBroad);
        for (port, ports) in [(0, vec![]), (70_000, vec![]), (443, vec![0]), (443, vec![443, 65_536])] {
            let candidate = rules(vec![NetworkEndpoint { port, ports, ..endpoint("a.example.com") }]);
            assert_eq!(reason(&candidate), Reason::PortOutOfRange);
        }
    }

    #[test]
    fn a_credential_needs_inspection_or_an_explicit_word() {
        let uninspected = NetworkEndpoint { protocol: String::new(), ..bound("github") };
        let skipped = NetworkEndpoint { tls: NetworkTlsMode::Skip.into(), ..bound("github") };
        for endpoint in [uninspected, skipped] {
            let refusal = verdict(&rules(vec![endpoint.clone()])).unwrap_err();
            assert_eq!((refusal.reason, refusal.class()), (Reason::Uninspected, Class::Precondition));
            let allowed = NetworkEndpoint { allow_uninspected_credentials: true, ..endpoint };
            assert_eq!(verdict(&rules(vec![allowed])), Ok(()));
        }
    }

    #[test]
    fn only_attached_providers_can_be_bound_and_none_globally() {
        let refusal = verdict(&rules(vec![bound("gitlab")])).unwrap_err();
        assert_eq!((refusal.reason, refusal.class()), (Reason::ProviderNotAttached, Class::Precondition));
        assert!(!refusal.to_string().contains("gitlab"));
        let refusal = policy(&rules(vec![bound("github")]), Scope::Global).unwrap_err();
        assert_eq!((refusal.reason, refusal.class()), (Reason::BindingInGlobalPolicy, Class::Precondition));
    }

    #[test]
    fn endpoints_that_overlap_must_agree_but_for_their_rules() {
        let left = endpoint("api.example.com");
        let other_rules = NetworkEndpoint { access: 1, ..endpoint("*.example.com") };
        assert_eq!(verdict(&rules(vec![left.clone(), other_rules])), Ok(()));

        for (right, difference) in [
            (NetworkEndpoint { tls: 1, ..endpoint("*.example.com") }, "tls"),
            (NetworkEndpoint { protocol: String::new(), ..left.clone() }, "protocol"),
            (NetworkEndpoint { enforcement: 2, ..left.clone() }, "enforcement"),
            (bound("github"), "credential_binding"),
        ] {
            let refusal = verdict(&rules(vec![left.clone(), right])).unwrap_err();
            assert_eq!((refusal.reason, refusal.class()), (Reason::Ambiguous { difference }, Class::Precondition));
        }

        let graphql = NetworkEndpoint { protocol: "graphql".into(), path: "/graphql".into(), ..left.clone() };
        let rest = NetworkEndpoint { path: "/v1/**".into(), ..left.clone() };
        assert_eq!(verdict(&rules(vec![graphql, rest])), Ok(()));
        let elsewhere = NetworkEndpoint { port: 8443, protocol: String::new(), ..left.clone() };
        assert_eq!(verdict(&rules(vec![left, elsewhere])), Ok(()));
    }

    #[test]
    fn paths_are_plain_and_root_is_nobody() {
        let with = |read_only: &[&str], read_write: &[&str]| SandboxPolicy {
            filesystem: Some(FilesystemPolicy {
                include_workdir: false,
                read_only: read_only.iter().map(ToString::to_string).collect(),
                read_write: read_write.iter().map(ToString::to_string).collect(),
            }),
            ..Default::default()
        };
        assert_eq!(reason(&with(&["usr"], &[])), Reason::PathNotPlain);
        assert_eq!(reason(&with(&[], &["/a/../etc"])), Reason::PathNotPlain);
        assert_eq!(reason(&with(&[], &["/"])), Reason::PathTooBroad);
        assert_eq!(verdict(&with(&["/"], &["/tmp/..x"])), Ok(()));
        let process = Some(ProcessPolicy { run_as_user: "root".into(), run_as_group: String::new() });
        assert_eq!(reason(&SandboxPolicy { process, ..Default::default() }), Reason::RootIdentity);
    }

    #[test]
    fn structs_have_one_meaning() {
        for kind in [None, Some(Kind::NumberValue(f64::NAN)), Some(Kind::NumberValue(f64::INFINITY))] {
            let config = Some(Struct { fields: [("k".to_owned(), Value { kind })].into() });
            let middleware = NetworkMiddlewareConfig { config, ..Default::default() };
            let network_middlewares = [("m".to_owned(), middleware)].into();
            assert_eq!(
                reason(&SandboxPolicy { network_middlewares, ..Default::default() }),
                Reason::StructNotCanonical
            );
        }
    }

    #[test]
    fn bound_endpoints_have_a_budget_of_their_own() {
        let hosts = (0..200).map(|at| NetworkEndpoint { host: format!("h{at}.example.com"), ..bound("github") });
        assert_eq!(reason(&rules(hosts.collect())), Reason::TooLarge { limit: budget::BOUND_ENDPOINT_BYTES });
    }

    #[test]
    fn the_largest_policy_is_checked_in_bounded_time() {
        let endpoints = (0..=budget::ENDPOINTS).map(|at| endpoint(&format!("*-{at}.example.com"))).collect::<Vec<_>>();
        assert_eq!(reason(&rules(endpoints.clone())), Reason::TooMany { what: "endpoints", limit: budget::ENDPOINTS });
        assert_eq!(verdict(&rules(endpoints[1..].to_vec())), Ok(()));
    }
}
