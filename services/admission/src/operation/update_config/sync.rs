//! A supervisor's policy sync: it brings the policy that it found in its image where the sandbox has none, and the
//! file system paths that it added to the one it has. It never takes the place of what a user set meanwhile.

use std::collections::BTreeSet;

use roadstead_policy::{canonical, check, fixed};
use roadstead_proto::api::sandbox::SandboxPolicy;
use roadstead_proto::api::v1::UpdateConfigRequest;
use roadstead_service_kit::access::ANOTHER_SANDBOX;
use roadstead_store::mutation::{Loaded, Write};
use roadstead_store::row;

use super::sandbox_policy::{response, revision};
use super::{reconfigured, refuse_under_global_policy, written};
use crate::context::Context;
use crate::operation::{Decision, at_version, session};
use crate::refusal::Refusal;
use crate::validate::selector;

/// Refuses all but a whole policy for one sandbox.
pub(super) fn check(request: &UpdateConfigRequest) -> Result<(), Refusal> {
    let UpdateConfigRequest { policy, setting_key, setting_value, delete_setting, global, merge_operations, .. } =
        request;
    let sync = policy.is_some()
        && setting_key.is_empty()
        && setting_value.is_none()
        && !delete_setting
        && !global
        && merge_operations.is_empty()
        && request.annotations.is_empty()
        && request.request_id.is_empty();
    if sync { Ok(()) } else { Err(denied("a supervisor may only sync the policy of its own sandbox")) }
}

pub(super) fn decide(
    request: &UpdateConfigRequest,
    loaded: &Loaded,
    context: &Context<'_>,
) -> Result<Decision, Refusal> {
    let before = session::own(loaded, context)?;
    check_own(request, before)?;
    session::not_deleting(before)?;
    at_version(request.expected_resource_version, before.resource_version)?;
    refuse_under_global_policy(loaded)?;

    let policy = canonical::synced(request.policy.clone().unwrap_or_default());
    let attached: BTreeSet<String> = before.providers.iter().cloned().collect();
    check::policy(&policy, check::Scope::Sandbox { attached: &attached })?;
    let hash = canonical::hash(&policy);

    let mut row = before.clone();
    if row.spec.policy.is_none() {
        row.spec.policy = Some(policy.clone());
        crate::operation::fits(&row)?;
    }
    match &loaded.policy {
        Some(latest) if latest.hash == hash => {
            let writes = if row == *before { Vec::new() } else { vec![session::updated(&mut row)] };
            return Ok(written(writes, Some(row.id), response(latest, &row)));
        }
        Some(latest) if !only_adds_paths(&latest.policy, &policy) => {
            return Err(Refusal::Aborted("the sandbox has another policy by now"));
        }
        Some(_) | None => {}
    }
    let revision = revision(before, policy, hash, row::Pairs::new(), loaded);
    let update = reconfigured(&mut row, "sync", loaded, context);
    let response = response(&revision, &row);
    Ok(written(vec![update, Write::InsertPolicyRevision(revision)], Some(row.id), response))
}

fn check_own(request: &UpdateConfigRequest, row: &row::Sandbox) -> Result<(), Refusal> {
    let elsewhere = match &request.workspace_scope {
        None => false,
        scope => selector::workspace(scope.as_ref())? != row.workspace_name,
    };
    if elsewhere || request.sandbox != row.name {
        return Err(denied(ANOTHER_SANDBOX));
    }
    Ok(())
}

fn only_adds_paths(before: &SandboxPolicy, after: &SandboxPolicy) -> bool {
    let with_paths_of_before = SandboxPolicy { filesystem: before.filesystem.clone(), ..after.clone() };
    canonical::hash(&with_paths_of_before) == canonical::hash(before) && fixed::check(before, after).is_ok()
}

fn denied(text: &str) -> Refusal {
    Refusal::Denied(text.to_owned())
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::sandbox::{FilesystemPolicy, NetworkEndpoint, NetworkPolicyRule};

    use super::*;
    use crate::operation::Operation as _;
    use crate::sample::{self, World};

    fn policy(host: &str, paths: &[&str]) -> SandboxPolicy {
        let endpoint = NetworkEndpoint { host: host.into(), port: 443, ..Default::default() };
        let rule = NetworkPolicyRule { endpoints: vec![endpoint], ..Default::default() };
        let read_only = paths.iter().map(|path| (*path).to_owned()).collect();
        SandboxPolicy {
            filesystem: Some(FilesystemPolicy { read_only, ..Default::default() }),
            network_policies: [("web".to_owned(), rule)].into(),
            ..Default::default()
        }
    }

    fn request(policy: SandboxPolicy) -> UpdateConfigRequest {
        UpdateConfigRequest { sandbox: "s".into(), policy: Some(policy), ..Default::default() }
    }

    fn found(latest: Option<SandboxPolicy>) -> Loaded {
        let loaded = Loaded { sandboxes: vec![sample::sandbox("s")], ..sample::nothing() };
        let latest = latest.map(|policy| {
            let hash = canonical::hash(&policy);
            revision(&sample::sandbox("s"), policy, hash, row::Pairs::new(), &loaded)
        });
        Loaded { policy: latest, ..loaded }
    }

    fn decide(request: &UpdateConfigRequest, loaded: &Loaded) -> Result<Decision, Refusal> {
        request.decide(loaded, &World::sandbox().context())
    }

    #[test]
    fn the_first_sync_becomes_revision_one_and_the_policy_of_the_creation() {
        let brought = policy("a.example.com", &["/usr"]);
        let decision = decide(&request(brought.clone()), &found(None)).unwrap();
        let [Write::UpdateSandbox(row), Write::InsertPolicyRevision(revision)] = decision.writes.as_slice() else {
            panic!("{:?}", decision.writes)
        };
        assert_eq!((revision.version, row.spec.policy.as_ref()), (1, Some(&brought)));
    }

    #[test]
    fn added_paths_are_a_new_revision_and_another_policy_is_not_taken() {
        let loaded = found(Some(policy("a.example.com", &["/usr"])));
        let enriched = decide(&request(policy("a.example.com", &["/usr", "/opt"])), &loaded).unwrap();
        assert!(matches!(enriched.writes.last(), Some(Write::InsertPolicyRevision(revision)) if revision.version == 2));
        for other in [policy("evil.example.com", &["/usr"]), policy("a.example.com", &[])] {
            assert!(matches!(decide(&request(other), &loaded), Err(Refusal::Aborted(_))));
        }
    }

    #[test]
    fn composed_rules_are_taken_out() {
        let mut brought = policy("a.example.com", &[]);
        brought.network_policies.insert("_provider_x".into(), NetworkPolicyRule::default());
        let decision = decide(&request(brought), &found(None)).unwrap();
        let Some(Write::InsertPolicyRevision(revision)) = decision.writes.last() else { panic!("no revision") };
        assert_eq!(revision.policy.network_policies.keys().collect::<Vec<_>>(), ["web"]);
    }

    #[test]
    fn anything_else_and_any_other_sandbox_is_denied() {
        let base = || request(policy("a.example.com", &[]));
        let world = World::sandbox();
        let plan =
            |request: UpdateConfigRequest| request.plan(roadstead_store::mutation::Locks::default(), &world.context());
        assert!(plan(base()).is_ok());
        for other in [
            UpdateConfigRequest { global: true, ..base() },
            UpdateConfigRequest { request_id: "x".into(), ..base() },
            UpdateConfigRequest { policy: None, setting_key: "ocsf_json_enabled".into(), ..base() },
            UpdateConfigRequest { annotations: [("a".to_owned(), String::new())].into(), ..base() },
        ] {
            assert!(matches!(plan(other), Err(Refusal::Denied(_))));
        }
        let elsewhere = UpdateConfigRequest { sandbox: "other".into(), ..base() };
        assert!(matches!(decide(&elsewhere, &found(None)), Err(Refusal::Denied(_))));
    }
}
