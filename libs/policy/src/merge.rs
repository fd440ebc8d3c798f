//! Merging: small changes to the policy that stands, instead of a whole policy in its place. Operations are applied in
//! order, each to what the ones before it left; if one of them cannot be, none is.
//!
//! A rule gives each of its binaries (none named: any) each of its endpoints. An operation gives nothing that it does
//! not name: whoever adds a binary names the endpoints it comes to, and whoever changes an endpoint names the binaries
//! that have it.

mod add_allow_rules;
mod add_deny_rules;
mod add_rule;
mod binary;
mod destination;
mod remove_binary;
mod remove_endpoint;
mod remove_rule;
mod requests;
mod target;

use prost::Message as _;
use roadstead_proto::api::sandbox::{NetworkEndpoint, SandboxPolicy};
use roadstead_proto::api::v1::PolicyMergeOperation;
use roadstead_proto::api::v1::policy_merge_operation::Operation;

use crate::refusal::{Path, Reason, Refusal};
use crate::{budget, canonical};

/// Operations of one request.
pub const OPERATIONS: usize = 100;
/// Rules on requests in all operations of one request; comparing each with those that stand stays cheap.
pub const RULES: usize = 1024;

/// One operation: what it must look like, and what it does to a policy.
trait Merge {
    /// Checks what needs no policy.
    fn check(&self, at: &Path<'_>) -> Result<(), Refusal>;

    /// Changes `policy`. If it cannot, `policy` is good for nothing any more.
    fn apply(&self, policy: &mut SandboxPolicy, at: &Path<'_>) -> Result<(), Refusal>;
}

/// Checks what needs no policy. Together the operations hold at most as many bytes and endpoints as a policy may.
///
/// # Errors
/// The first rule that is broken, with its field, such as `merge_operations[2].add_rule.rule_name`.
pub fn check(operations: &[PolicyMergeOperation]) -> Result<(), Refusal> {
    let root = Path::Root("merge_operations");
    root.at_most_of("operations", operations.len(), OPERATIONS)?;
    if operations.iter().map(PolicyMergeOperation::encoded_len).sum::<usize>() > budget::POLICY_BYTES {
        return Err(root.refuse(Reason::TooLarge { limit: budget::POLICY_BYTES }));
    }
    let count = operations.iter().map(|operation| endpoints(operation).len()).sum();
    root.at_most_of("endpoints", count, budget::ENDPOINTS)?;
    root.at_most_of("rules on requests", operations.iter().map(rules).sum(), RULES)?;
    each(operations, |operation, at| operation.check(at))
}

/// The policy that `operations`, which passed [`check`], make of `policy`: as authored, in canonical form. Whether the
/// whole of it is a good policy is for [`crate::check`].
///
/// # Errors
/// The first operation that the policy does not allow, with its field.
pub fn apply(policy: &SandboxPolicy, operations: &[PolicyMergeOperation]) -> Result<SandboxPolicy, Refusal> {
    let mut merged = policy.clone();
    each(operations, |operation, at| operation.apply(&mut merged, at))?;
    Ok(canonical::authored(merged))
}

fn each(
    operations: &[PolicyMergeOperation],
    mut visit: impl FnMut(&dyn Merge, &Path<'_>) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let root = Path::Root("merge_operations");
    for (index, operation) in operations.iter().enumerate() {
        let at = root.index(index);
        let (name, operation) = variant(operation).ok_or_else(|| at.refuse(Reason::Missing))?;
        visit(operation, &at.field(name))?;
    }
    Ok(())
}

fn variant(operation: &PolicyMergeOperation) -> Option<(&'static str, &dyn Merge)> {
    Some(match operation.operation.as_ref()? {
        Operation::AddRule(operation) => ("add_rule", operation),
        Operation::RemoveEndpoint(operation) => ("remove_endpoint", operation),
        Operation::RemoveRule(operation) => ("remove_rule", operation),
        Operation::AddDenyRules(operation) => ("add_deny_rules", operation),
        Operation::AddAllowRules(operation) => ("add_allow_rules", operation),
        Operation::RemoveBinary(operation) => ("remove_binary", operation),
    })
}

fn endpoints(operation: &PolicyMergeOperation) -> &[NetworkEndpoint] {
    match &operation.operation {
        Some(Operation::AddRule(add)) => add.rule.as_ref().map_or(&[], |rule| &rule.endpoints),
        _ => &[],
    }
}

fn rules(operation: &PolicyMergeOperation) -> usize {
    match &operation.operation {
        Some(Operation::AddAllowRules(add)) => add.rules.len(),
        Some(Operation::AddDenyRules(add)) => add.deny_rules.len(),
        _ => endpoints(operation).iter().map(|endpoint| endpoint.rules.len() + endpoint.deny_rules.len()).sum(),
    }
}
