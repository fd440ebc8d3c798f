//! `add_allow_rules`: requests that an endpoint lets through beside those it does already.

use roadstead_proto::api::sandbox::{L7Allow, NetworkAccessPreset, SandboxPolicy};
use roadstead_proto::api::v1::AddAllowRules;

use super::requests::Allowed;
use super::{Merge, requests, target};
use crate::refusal::{Path, Reason, Refusal};

impl Merge for AddAllowRules {
    fn check(&self, at: &Path<'_>) -> Result<(), Refusal> {
        target::check(self.target.as_ref(), &at.field("target"))?;
        let at = at.field("rules");
        if self.rules.is_empty() {
            return Err(at.refuse(Reason::Missing));
        }
        let says_nothing = |allow: &Option<L7Allow>| allow.as_ref().is_none_or(|allow| *allow == L7Allow::default());
        match self.rules.iter().position(|rule| says_nothing(&rule.allow)) {
            Some(index) => Err(at.index(index).field("allow").refuse(Reason::Missing)),
            None => Ok(()),
        }
    }

    fn apply(&self, policy: &mut SandboxPolicy, at: &Path<'_>) -> Result<(), Refusal> {
        let at = at.field("target");
        let endpoint = target::find(policy, self.target.as_ref(), &at)?;
        requests::allow(endpoint, Allowed { access: NetworkAccessPreset::Unspecified.into(), rules: &self.rules }, &at)
    }
}
