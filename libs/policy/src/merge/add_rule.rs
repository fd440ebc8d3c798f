//! `add_rule`: a rule, or more binaries and endpoints for one that stands.

use std::collections::BTreeMap;

use roadstead_proto::api::sandbox::{NetworkEndpoint, NetworkPolicyRule, SandboxPolicy};
use roadstead_proto::api::v1::AddNetworkRule;

use super::requests::Allowed;
use super::{Merge, binary, destination, requests};
use crate::canonical::RESERVED_PREFIX;
use crate::endpoint::{self, ports};
use crate::refusal::{Path, Reason, Refusal};
use crate::{ambiguity, check};

impl Merge for AddNetworkRule {
    fn check(&self, at: &Path<'_>) -> Result<(), Refusal> {
        check::name(&self.rule_name, &at.field("rule_name"))?;
        let at = at.field("rule");
        let rule = self.rule.as_ref().ok_or_else(|| at.refuse(Reason::Missing))?;
        if rule.name.starts_with(RESERVED_PREFIX) {
            return Err(at.field("name").refuse(Reason::ReservedName));
        }
        let endpoints = at.field("endpoints");
        if rule.endpoints.is_empty() {
            return Err(endpoints.refuse(Reason::Missing));
        }
        for (index, endpoint) in rule.endpoints.iter().enumerate() {
            endpoint::check(endpoint, &endpoints.index(index))?;
            destination::check(endpoint, &endpoints.index(index))?;
        }
        binary::check_all(&rule.binaries, &at.field("binaries"))
    }

    fn apply(&self, policy: &mut SandboxPolicy, at: &Path<'_>) -> Result<(), Refusal> {
        let at = at.field("rule");
        let added = self.rule.as_ref().ok_or_else(|| at.refuse(Reason::Missing))?;
        let standing = policy.network_policies.get(&self.rule_name);
        let mut merged = standing.cloned().unwrap_or_else(|| NetworkPolicyRule {
            name: if added.name.is_empty() { self.rule_name.clone() } else { added.name.clone() },
            endpoints: Vec::new(),
            binaries: added.binaries.clone(),
        });
        add_endpoints(&mut merged.endpoints, &added.endpoints, &at.field("endpoints"))?;
        if let Some(standing) = standing {
            binary::add(&mut merged.binaries, &added.binaries);
            check_named(standing, added, &merged, &at)?;
        }
        policy.network_policies.insert(self.rule_name.clone(), merged);
        Ok(())
    }
}

/// What tells an endpoint from the others of its rule.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    host: String,
    ports: Vec<u32>,
    path: String,
}

impl Place {
    fn of(endpoint: &NetworkEndpoint) -> Self {
        let mut ports: Vec<u32> = ports(endpoint).collect();
        ports.sort_unstable();
        ports.dedup();
        Self { host: endpoint.host.to_ascii_lowercase(), ports, path: endpoint.path.clone() }
    }
}

/// Adds endpoints, and the requests that they allow and deny to the ones that stand at their places.
fn add_endpoints(
    endpoints: &mut Vec<NetworkEndpoint>,
    added: &[NetworkEndpoint],
    at: &Path<'_>,
) -> Result<(), Refusal> {
    let mut places: BTreeMap<Place, usize> = BTreeMap::new();
    for (index, endpoint) in endpoints.iter().enumerate() {
        places.entry(Place::of(endpoint)).or_insert(index);
    }
    for (index, added) in added.iter().enumerate() {
        let at = at.index(index);
        let place = *places.entry(Place::of(added)).or_insert(endpoints.len());
        match endpoints.get_mut(place) {
            Some(standing) => add_requests(standing, added, &at)?,
            None => endpoints.push(added.clone()),
        }
    }
    Ok(())
}

fn add_requests(standing: &mut NetworkEndpoint, added: &NetworkEndpoint, at: &Path<'_>) -> Result<(), Refusal> {
    if let Some(difference) = ambiguity::difference(standing, added) {
        return Err(at.refuse(Reason::StandsOtherwise { difference }));
    }
    requests::allow(standing, Allowed::by(added), at)?;
    requests::deny(standing, &added.deny_rules, at)
}

/// Refuses to give a binary an endpoint that neither the rule gave it nor `added` names for it.
fn check_named(
    standing: &NetworkPolicyRule,
    added: &NetworkPolicyRule,
    merged: &NetworkPolicyRule,
    at: &Path<'_>,
) -> Result<(), Refusal> {
    if merged.endpoints != standing.endpoints && !binary::covers(&added.binaries, &standing.binaries) {
        return Err(at.field("binaries").refuse(Reason::WidensBinaries));
    }
    if binary::covers(&standing.binaries, &added.binaries) {
        return Ok(());
    }
    let mut named = Vec::new();
    add_endpoints(&mut named, &added.endpoints, &at.field("endpoints"))?;
    let named: BTreeMap<_, _> = named.iter().map(|endpoint| (Place::of(endpoint), endpoint)).collect();
    let is_named =
        |endpoint: &NetworkEndpoint| named.get(&Place::of(endpoint)).is_some_and(|named| gives(named, endpoint));
    if merged.endpoints.iter().all(is_named) {
        Ok(())
    } else {
        Err(at.field("endpoints").refuse(Reason::WidensEndpoints))
    }
}

/// Whether all that `inner` lets through is let through by `outer`, which stands at the same place. A rule may have
/// several endpoints at one place, so `inner` need not be the one that `outer` was joined with.
fn gives(outer: &NetworkEndpoint, inner: &NetworkEndpoint) -> bool {
    ambiguity::difference(outer, inner).is_none()
        && Allowed::by(outer).covers(Allowed::by(inner), &inner.protocol)
        && outer.deny_rules.iter().all(|rule| inner.deny_rules.contains(rule))
}
