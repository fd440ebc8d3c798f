//! `remove_rule`: a rule with all it gives.

use roadstead_proto::api::sandbox::SandboxPolicy;
use roadstead_proto::api::v1::RemoveNetworkRule;

use super::Merge;
use crate::check;
use crate::refusal::{Path, Reason, Refusal};

impl Merge for RemoveNetworkRule {
    fn check(&self, at: &Path<'_>) -> Result<(), Refusal> {
        check::name(&self.rule_name, &at.field("rule_name"))
    }

    fn apply(&self, policy: &mut SandboxPolicy, at: &Path<'_>) -> Result<(), Refusal> {
        match policy.network_policies.remove(&self.rule_name) {
            Some(_) => Ok(()),
            None => Err(at.field("rule_name").refuse(Reason::NoSuchRule)),
        }
    }
}
