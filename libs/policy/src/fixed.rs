//! The parts of a policy that are applied once, at creation, and cannot follow a change.

use roadstead_proto::api::sandbox::SandboxPolicy;

use crate::refusal::{Path, Reason, Refusal};

/// Checks that `proposed` keeps what `original`, the policy of the sandbox's creation, fixed: landlock, process,
/// `include_workdir`, and every path of the file system; paths may be added. An absent part equals an empty one.
///
/// # Errors
/// `Fixed` or `PathRemoved` with the field.
pub fn check(original: &SandboxPolicy, proposed: &SandboxPolicy) -> Result<(), Refusal> {
    let root = Path::Root("policy");
    if original.landlock.clone().unwrap_or_default() != proposed.landlock.clone().unwrap_or_default() {
        return Err(root.field("landlock").refuse(Reason::Fixed));
    }
    if original.process.clone().unwrap_or_default() != proposed.process.clone().unwrap_or_default() {
        return Err(root.field("process").refuse(Reason::Fixed));
    }
    let at = root.field("filesystem");
    let before = original.filesystem.clone().unwrap_or_default();
    let after = proposed.filesystem.clone().unwrap_or_default();
    if before.include_workdir != after.include_workdir {
        return Err(at.field("include_workdir").refuse(Reason::Fixed));
    }
    for (before, after, field) in
        [(&before.read_only, &after.read_only, "read_only"), (&before.read_write, &after.read_write, "read_write")]
    {
        if before.iter().any(|path| !after.contains(path)) {
            return Err(at.field(field).refuse(Reason::PathRemoved));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::sandbox::{FilesystemPolicy, LandlockPolicy, NetworkPolicyRule, ProcessPolicy};

    use super::*;

    fn original() -> SandboxPolicy {
        SandboxPolicy {
            filesystem: Some(FilesystemPolicy {
                include_workdir: true,
                read_only: vec!["/usr".into()],
                read_write: vec!["/tmp".into()],
            }),
            landlock: Some(LandlockPolicy { compatibility: "best_effort".into() }),
            process: Some(ProcessPolicy { run_as_user: "sandbox".into(), run_as_group: "sandbox".into() }),
            ..Default::default()
        }
    }

    fn changed(change: impl FnOnce(&mut SandboxPolicy)) -> Result<(), Refusal> {
        let mut proposed = original();
        change(&mut proposed);
        check(&original(), &proposed)
    }

    #[test]
    fn network_rules_and_added_paths_may_change() {
        assert_eq!(
            changed(|policy| {
                policy.network_policies.insert("web".into(), NetworkPolicyRule::default());
                policy.filesystem.as_mut().unwrap().read_only.push("/opt".into());
            }),
            Ok(())
        );
    }

    #[test]
    fn what_is_applied_once_may_not_change() {
        let refused = |result: Result<(), Refusal>| result.unwrap_err().to_string();
        let text = refused(changed(|policy| policy.landlock = None));
        assert_eq!(text, "policy.landlock: may not change after creation");
        let text = refused(changed(|policy| policy.process.as_mut().unwrap().run_as_user = "x".into()));
        assert_eq!(text, "policy.process: may not change after creation");
        let text = refused(changed(|policy| policy.filesystem.as_mut().unwrap().include_workdir = false));
        assert_eq!(text, "policy.filesystem.include_workdir: may not change after creation");
        let text = refused(changed(|policy| policy.filesystem.as_mut().unwrap().read_write.clear()));
        assert_eq!(text, "policy.filesystem.read_write: paths may be added after creation, not removed");
    }

    #[test]
    fn an_absent_part_equals_an_empty_one() {
        let empty = SandboxPolicy { filesystem: Some(FilesystemPolicy::default()), ..Default::default() };
        assert_eq!(check(&SandboxPolicy::default(), &empty), Ok(()));
    }
}
