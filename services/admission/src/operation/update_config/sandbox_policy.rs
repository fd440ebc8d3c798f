//! A user's policy for one sandbox.

use std::collections::BTreeSet;

use roadstead_policy::{canonical, check, fixed};
use roadstead_proto::api::sandbox::SandboxPolicy;
use roadstead_proto::api::v1::{PolicyStatus, UpdateConfigRequest, UpdateConfigResponse};
use roadstead_store::mutation::{Loaded, Write};
use roadstead_store::row;

use super::{annotated, reconfigured, refuse_under_global_policy, written};
use crate::context::Context;
use crate::operation::{Decision, at_version, session};
use crate::refusal::Refusal;

pub(super) fn decide(
    request: &UpdateConfigRequest,
    policy: &SandboxPolicy,
    loaded: &Loaded,
    context: &Context<'_>,
) -> Result<Decision, Refusal> {
    let before = session::named(loaded, &request.sandbox)?;
    session::not_deleting(before)?;
    at_version(request.expected_resource_version, before.resource_version)?;
    refuse_under_global_policy(loaded)?;
    let policy = acceptable(policy, before, loaded)?;

    let hash = canonical::hash(&policy);
    let latest = loaded.policy.as_ref();
    if let Some(same) = latest.filter(|latest| latest.hash == hash && latest.provenance == request.annotations) {
        return Ok(written(Vec::new(), Some(before.id), response(same, before)));
    }
    let revision = revision(before, policy, hash, request.annotations.clone(), loaded);
    let (mut row, _) = annotated(before, request)?;
    let update = reconfigured(&mut row, "policy", loaded, context);
    let response = response(&revision, &row);
    Ok(written(vec![update, Write::InsertPolicyRevision(revision)], Some(row.id), response))
}

/// The policy as it will be kept, if the sandbox may have it.
pub(super) fn acceptable(
    policy: &SandboxPolicy,
    row: &row::Sandbox,
    loaded: &Loaded,
) -> Result<SandboxPolicy, Refusal> {
    let attached: BTreeSet<String> = row.providers.iter().cloned().collect();
    check::policy(policy, check::Scope::Sandbox { attached: &attached })?;
    let latest = loaded.policy.as_ref().map(|latest| &latest.policy);
    if let Some(original) = row.spec.policy.as_ref().or(latest) {
        fixed::check(original, policy)?;
    }
    Ok(canonical::authored(policy.clone()))
}

/// The next revision of the sandbox's history.
pub(super) fn revision(
    row: &row::Sandbox,
    policy: SandboxPolicy,
    hash: String,
    provenance: row::Pairs,
    loaded: &Loaded,
) -> row::PolicyRevision {
    row::PolicyRevision {
        scope: Some(row.id),
        version: loaded.policy.as_ref().map_or(1, |latest| latest.version.saturating_add(1)),
        hash,
        policy,
        status: PolicyStatus::Pending,
        load_error: String::new(),
        created_at: loaded.now,
        loaded_at: None,
        provenance,
    }
}

pub(super) fn response(revision: &row::PolicyRevision, row: &row::Sandbox) -> UpdateConfigResponse {
    UpdateConfigResponse {
        version: revision.version,
        policy_hash: revision.hash.clone(),
        annotations: row.annotations.clone(),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::sandbox::{NetworkCredentialBinding, NetworkEndpoint, NetworkPolicyRule, ProcessPolicy};

    use super::*;
    use crate::operation::Operation as _;
    use crate::sample::{self, World};

    pub(crate) fn policy(host: &str) -> SandboxPolicy {
        let endpoint = NetworkEndpoint { host: host.into(), port: 443, ..Default::default() };
        let rule = NetworkPolicyRule { endpoints: vec![endpoint], ..Default::default() };
        SandboxPolicy { network_policies: [("web".to_owned(), rule)].into(), ..Default::default() }
    }

    fn request(policy: SandboxPolicy) -> UpdateConfigRequest {
        UpdateConfigRequest { sandbox: "s".into(), policy: Some(policy), ..Default::default() }
    }

    fn decide(request: &UpdateConfigRequest, loaded: &Loaded) -> Result<Decision, Refusal> {
        request.decide(loaded, &World::user().context())
    }

    fn found(row: row::Sandbox, latest: Option<row::PolicyRevision>) -> Loaded {
        Loaded { sandboxes: vec![row], policy: latest, ..sample::in_workspace() }
    }

    fn inserted(decision: &Decision) -> &row::PolicyRevision {
        match decision.writes.as_slice() {
            [Write::UpdateSandbox(_), Write::InsertPolicyRevision(revision)] => revision,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_new_policy_is_the_next_revision_and_waits_for_its_verdict() {
        let first =
            inserted(&decide(&request(policy("a.example.com")), &found(sample::sandbox("s"), None)).unwrap()).clone();
        assert_eq!((first.version, first.status), (1, PolicyStatus::Pending));
        let loaded = found(sample::sandbox("s"), Some(first));
        let second = decide(&request(policy("b.example.com")), &loaded).unwrap();
        assert_eq!(inserted(&second).version, 2);
    }

    #[test]
    fn equal_content_with_equal_provenance_writes_nothing() {
        let first =
            inserted(&decide(&request(policy("a.example.com")), &found(sample::sandbox("s"), None)).unwrap()).clone();
        let loaded = found(sample::sandbox("s"), Some(first));
        assert!(decide(&request(policy("a.example.com")), &loaded).unwrap().writes.is_empty());
        let annotations = [("by".to_owned(), "ann".to_owned())].into();
        let annotated = UpdateConfigRequest { annotations, ..request(policy("a.example.com")) };
        assert_eq!(inserted(&decide(&annotated, &loaded).unwrap()).provenance["by"], "ann");
    }

    #[test]
    fn a_global_policy_shadows_and_refuses() {
        let mut loaded = found(sample::sandbox("s"), None);
        let global = revision(&sample::sandbox("s"), policy("g.example.com"), "h".into(), row::Pairs::new(), &loaded);
        loaded.global_policy = Some(global);
        loaded.global_settings.values.insert("policy".into(), Default::default());
        assert!(matches!(decide(&request(policy("a.example.com")), &loaded), Err(Refusal::Precondition(_))));
        // One that was deleted shadows nothing.
        loaded.global_settings.values.clear();
        assert!(decide(&request(policy("a.example.com")), &loaded).is_ok());
    }

    #[test]
    fn what_is_fixed_at_creation_stays_and_bindings_need_an_attachment() {
        let mut row = sample::sandbox("s");
        row.spec.policy = Some(policy("a.example.com"));
        let mut changed = policy("a.example.com");
        changed.process = Some(ProcessPolicy { run_as_user: "other".into(), run_as_group: "other".into() });
        assert!(matches!(decide(&request(changed), &found(row.clone(), None)), Err(Refusal::Invalid { .. })));

        let mut bound = policy("a.example.com");
        let endpoint = &mut bound.network_policies.get_mut("web").unwrap().endpoints[0];
        endpoint.protocol = "rest".into();
        endpoint.credential_binding = Some(NetworkCredentialBinding { provider: "p".into() });
        let refused = decide(&request(bound.clone()), &found(row.clone(), None));
        assert!(matches!(refused, Err(Refusal::Precondition(_))));
        row.providers = vec!["p".into()];
        assert!(decide(&request(bound), &found(row, None)).is_ok());
    }

    #[test]
    fn a_stale_version_and_a_missing_sandbox_are_told() {
        let stale = UpdateConfigRequest { expected_resource_version: 5, ..request(policy("a.example.com")) };
        let refused = decide(&stale, &found(sample::sandbox("s"), None));
        assert!(matches!(refused, Err(Refusal::VersionConflict { current: 1 })));
        let missing = decide(&request(policy("a.example.com")), &sample::in_workspace());
        assert!(matches!(missing, Err(Refusal::NotFound { .. })));
    }
}
