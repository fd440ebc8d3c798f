//! Policies that can be told apart.

use std::collections::BTreeMap;

use roadstead_proto::api::sandbox::{
    NetworkAccessPreset, NetworkCredentialBinding, NetworkEndpoint, NetworkPolicyRule, SandboxPolicy,
};

/// The supervisor's own policy and one inspected endpoint at `host`, to which a provider's credential may be bound.
#[must_use]
pub fn to_host(host: &str, bound: Option<&str>) -> SandboxPolicy {
    let endpoint = NetworkEndpoint {
        host: host.to_owned(),
        port: 443,
        protocol: "rest".to_owned(),
        access: NetworkAccessPreset::ReadOnly.into(),
        credential_binding: bound.map(|provider| NetworkCredentialBinding { provider: provider.to_owned() }),
        ..Default::default()
    };
    let rule = NetworkPolicyRule { name: "web".to_owned(), endpoints: vec![endpoint], binaries: Vec::new() };
    SandboxPolicy {
        network_policies: BTreeMap::from([("web".to_owned(), rule)]),
        ..roadstead_supervisor::default_policy()
    }
}
