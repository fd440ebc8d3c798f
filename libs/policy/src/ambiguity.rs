//! Endpoints that match the same requests must agree on everything but the rules that say what is allowed: what a
//! connection is and how it is read cannot depend on which of them is looked at first.

use roadstead_proto::api::sandbox::{NetworkEndpoint, SandboxPolicy};

use crate::endpoint::{self, ports};
use crate::pattern::{Host, paths_overlap};
use crate::refusal::{Path, Reason, Refusal};

/// Refuses the first endpoint that overlaps an earlier one and differs from it in more than its rules.
pub(crate) fn check(policy: &SandboxPolicy, rules: &Path<'_>) -> Result<(), Refusal> {
    let mut earlier: Vec<(&NetworkEndpoint, Host)> = Vec::new();
    for (key, rule) in &policy.network_policies {
        for (at, endpoint) in rule.endpoints.iter().enumerate() {
            let host = Host::new(&endpoint.host);
            let overlapping = earlier
                .iter()
                .filter(|(other, other_host)| ports_overlap(other, endpoint) && other_host.overlaps(&host));
            if let Some(difference) = overlapping.map(|(other, _)| *other).find_map(|other| difference(other, endpoint))
            {
                let reason = Reason::Ambiguous { difference };
                return Err(rules.key(key).field("endpoints").index(at).refuse(reason));
            }
            earlier.push((endpoint, host));
        }
    }
    Ok(())
}

fn ports_overlap(left: &NetworkEndpoint, right: &NetworkEndpoint) -> bool {
    ports(left).any(|port| ports(right).any(|other| other == port))
}

/// The first thing that two endpoints of one host and port do differently.
pub(crate) fn difference(left: &NetworkEndpoint, right: &NetworkEndpoint) -> Option<&'static str> {
    connection_difference(left, right)
        .or_else(|| if paths_overlap(&left.path, &right.path) { request_difference(left, right) } else { None })
}

/// What is settled before a request, and so its path, is seen.
fn connection_difference(left: &NetworkEndpoint, right: &NetworkEndpoint) -> Option<&'static str> {
    first_of([
        ("tls", left.tls != right.tls),
        ("protocol", endpoint::is_inspected(left) != endpoint::is_inspected(right)),
        ("allowed_ips", sorted(&left.allowed_ips) != sorted(&right.allowed_ips)),
    ])
}

fn request_difference(left: &NetworkEndpoint, right: &NetworkEndpoint) -> Option<&'static str> {
    first_of([
        ("protocol", left.protocol != right.protocol),
        ("enforcement", left.enforcement != right.enforcement),
        ("allow_encoded_slash", left.allow_encoded_slash != right.allow_encoded_slash),
        ("persisted_queries", left.persisted_queries != right.persisted_queries),
        ("graphql_persisted_queries", left.graphql_persisted_queries != right.graphql_persisted_queries),
        ("graphql_max_body_bytes", left.graphql_max_body_bytes != right.graphql_max_body_bytes),
        ("json_rpc_max_body_bytes", left.json_rpc_max_body_bytes != right.json_rpc_max_body_bytes),
        ("mcp", left.mcp != right.mcp),
        ("websocket_credential_rewrite", left.websocket_credential_rewrite != right.websocket_credential_rewrite),
        (
            "request_body_credential_rewrite",
            left.request_body_credential_rewrite != right.request_body_credential_rewrite,
        ),
        ("credential_signing", left.credential_signing != right.credential_signing),
        ("signing_service", left.signing_service != right.signing_service),
        ("signing_region", left.signing_region != right.signing_region),
        ("credential_binding", left.credential_binding != right.credential_binding),
        ("allow_uninspected_credentials", left.allow_uninspected_credentials != right.allow_uninspected_credentials),
    ])
}

fn first_of<const N: usize>(differences: [(&'static str, bool); N]) -> Option<&'static str> {
    differences.into_iter().find_map(|(name, differs)| differs.then_some(name))
}

fn sorted(texts: &[String]) -> Vec<&String> {
    let mut sorted = texts.iter().collect::<Vec<_>>();
    sorted.sort();
    sorted
}
