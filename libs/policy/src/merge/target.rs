//! The one endpoint that rules are added to. Everybody who has it is affected, so the target names all of its ports
//! and all binaries of its rule.

use std::collections::BTreeSet;

use roadstead_proto::api::sandbox::{NetworkEndpoint, NetworkPolicyRule, SandboxPolicy};
use roadstead_proto::api::v1::L7RuleTarget;

use super::binary;
use crate::check;
use crate::endpoint::{self, ports};
use crate::refusal::{Path, Reason, Refusal};

pub(super) fn check(target: Option<&L7RuleTarget>, at: &Path<'_>) -> Result<(), Refusal> {
    let target = target.ok_or_else(|| at.refuse(Reason::Missing))?;
    check::name(&target.rule_name, &at.field("rule_name"))?;
    if target.host.is_empty() {
        return Err(at.field("host").refuse(Reason::Missing));
    }
    if target.ports.is_empty() {
        return Err(at.field("ports").refuse(Reason::Missing));
    }
    endpoint::check_port_list(&target.ports, &at.field("ports"))?;
    if target.any_binary != target.binaries.is_empty() {
        return Err(at.field("binaries").refuse(Reason::BinariesOrAny));
    }
    binary::check_all(&target.binaries, &at.field("binaries"))
}

/// The endpoint that the target means. Its requests are seen, so rules on them are kept.
pub(super) fn find<'p>(
    policy: &'p mut SandboxPolicy,
    target: Option<&L7RuleTarget>,
    at: &Path<'_>,
) -> Result<&'p mut NetworkEndpoint, Refusal> {
    let target = target.ok_or_else(|| at.refuse(Reason::Missing))?;
    let rule = policy.network_policies.get_mut(&target.rule_name);
    let rule = rule.ok_or_else(|| at.field("rule_name").refuse(Reason::NoSuchRule))?;
    let named: BTreeSet<u32> = target.ports.iter().copied().collect();
    let index = only(rule, target, &named, at)?;
    if binary::paths(&rule.binaries) != binary::paths(&target.binaries) {
        return Err(at.field("binaries").refuse(Reason::OtherBinaries));
    }
    let found = rule.endpoints.get_mut(index).ok_or_else(|| at.refuse(Reason::NoSuchEndpoint))?;
    if ports(found).collect::<BTreeSet<_>>() != named {
        return Err(at.field("ports").refuse(Reason::OtherPorts));
    }
    if endpoint::is_inspected(found) { Ok(found) } else { Err(at.refuse(Reason::NotInspected)) }
}

/// Where in the rule it is, by host, path and any of the ports.
fn only(
    rule: &NetworkPolicyRule,
    target: &L7RuleTarget,
    named: &BTreeSet<u32>,
    at: &Path<'_>,
) -> Result<usize, Refusal> {
    let is_meant = |endpoint: &NetworkEndpoint| {
        endpoint.host.eq_ignore_ascii_case(&target.host)
            && target.path.as_ref().is_none_or(|path| *path == endpoint.path)
            && ports(endpoint).any(|port| named.contains(&port))
    };
    let mut meant = rule.endpoints.iter().enumerate().filter(|(_, endpoint)| is_meant(endpoint));
    match (meant.next(), meant.next()) {
        (Some((index, _)), None) => Ok(index),
        (None, _) => Err(at.refuse(Reason::NoSuchEndpoint)),
        (Some(_), Some(_)) => Err(at.refuse(Reason::SeveralEndpoints)),
    }
}
