//! `add_deny_rules`: requests that an endpoint no longer lets through.

use roadstead_proto::api::sandbox::{L7DenyRule, SandboxPolicy};
use roadstead_proto::api::v1::AddDenyRules;

use super::{Merge, requests, target};
use crate::refusal::{Path, Reason, Refusal};

impl Merge for AddDenyRules {
    fn check(&self, at: &Path<'_>) -> Result<(), Refusal> {
        target::check(self.target.as_ref(), &at.field("target"))?;
        let at = at.field("deny_rules");
        if self.deny_rules.is_empty() {
            return Err(at.refuse(Reason::Missing));
        }
        match self.deny_rules.iter().position(|rule| *rule == L7DenyRule::default()) {
            Some(index) => Err(at.index(index).refuse(Reason::Missing)),
            None => Ok(()),
        }
    }

    fn apply(&self, policy: &mut SandboxPolicy, at: &Path<'_>) -> Result<(), Refusal> {
        let at = at.field("target");
        let endpoint = target::find(policy, self.target.as_ref(), &at)?;
        requests::deny(endpoint, &self.deny_rules, &at)
    }
}
