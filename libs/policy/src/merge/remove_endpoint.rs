//! `remove_endpoint`: a host and port, of one rule or of all. An endpoint keeps its other ports; one that is left
//! without a port goes, and so does a rule that is left without an endpoint.

use roadstead_proto::api::sandbox::{NetworkEndpoint, NetworkPolicyRule, SandboxPolicy};
use roadstead_proto::api::v1::RemoveNetworkEndpoint;

use super::Merge;
use crate::check;
use crate::endpoint::{self, ports};
use crate::refusal::{Path, Reason, Refusal};

impl Merge for RemoveNetworkEndpoint {
    fn check(&self, at: &Path<'_>) -> Result<(), Refusal> {
        if !self.rule_name.is_empty() {
            check::name(&self.rule_name, &at.field("rule_name"))?;
        }
        if self.host.is_empty() {
            return Err(at.field("host").refuse(Reason::Missing));
        }
        endpoint::check_port(self.port, &at.field("port"))
    }

    fn apply(&self, policy: &mut SandboxPolicy, at: &Path<'_>) -> Result<(), Refusal> {
        if !self.rule_name.is_empty() && !policy.network_policies.contains_key(&self.rule_name) {
            return Err(at.field("rule_name").refuse(Reason::NoSuchRule));
        }
        let mut found = false;
        policy.network_policies.retain(|key, rule| {
            let hit = (self.rule_name.is_empty() || *key == self.rule_name) && remove(rule, &self.host, self.port);
            found |= hit;
            !(hit && rule.endpoints.is_empty())
        });
        if found { Ok(()) } else { Err(at.refuse(Reason::NoSuchEndpoint)) }
    }
}

/// Whether there was something to remove.
fn remove(rule: &mut NetworkPolicyRule, host: &str, port: u32) -> bool {
    let mut found = false;
    rule.endpoints.retain_mut(|endpoint| {
        let hit = endpoint.host.eq_ignore_ascii_case(host) && ports(endpoint).any(|own| own == port);
        found |= hit;
        !hit || close(endpoint, port)
    });
    found
}

/// Takes a port away; whether another one is left.
fn close(endpoint: &mut NetworkEndpoint, port: u32) -> bool {
    endpoint.ports.retain(|own| *own != port);
    let Some(first) = endpoint.ports.first() else { return false };
    if endpoint.port == port {
        endpoint.port = *first;
    }
    true
}
