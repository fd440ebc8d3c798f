//! `remove_binary`: one binary of a rule. A rule without any would be open to all, so it goes with its last one.

use roadstead_proto::api::sandbox::SandboxPolicy;
use roadstead_proto::api::v1::RemoveNetworkBinary;

use super::{Merge, binary};
use crate::check;
use crate::refusal::{Path, Reason, Refusal};

impl Merge for RemoveNetworkBinary {
    fn check(&self, at: &Path<'_>) -> Result<(), Refusal> {
        check::name(&self.rule_name, &at.field("rule_name"))?;
        binary::check(&self.binary_path, &at.field("binary_path"))
    }

    fn apply(&self, policy: &mut SandboxPolicy, at: &Path<'_>) -> Result<(), Refusal> {
        let rule = policy.network_policies.get_mut(&self.rule_name);
        let rule = rule.ok_or_else(|| at.field("rule_name").refuse(Reason::NoSuchRule))?;
        let before = rule.binaries.len();
        rule.binaries.retain(|binary| binary.path != self.binary_path);
        if rule.binaries.len() == before {
            return Err(at.field("binary_path").refuse(Reason::NoSuchBinary));
        }
        if rule.binaries.is_empty() {
            policy.network_policies.remove(&self.rule_name);
        }
        Ok(())
    }
}
