//! A user's policy for one sandbox: a whole one, or changes to the one that stands.

use std::collections::BTreeSet;

use roadstead_policy::{canonical, check, fixed, merge};
use roadstead_proto::api::sandbox::SandboxPolicy;
use roadstead_proto::api::v1::{PolicyMergeOperation, PolicyStatus, UpdateConfigRequest, UpdateConfigResponse};
use roadstead_store::mutation::{Loaded, Write};
use roadstead_store::row;

use super::{annotated, reconfigured, refuse_under_global_policy, written};
use crate::context::Context;
use crate::operation::{Decision, at_version, session};
use crate::refusal::Refusal;

pub(super) fn set(
    request: &UpdateConfigRequest,
    policy: &SandboxPolicy,
    loaded: &Loaded,
    context: &Context<'_>,
) -> Result<Decision, Refusal> {
    let before = changeable(request, loaded)?;
    revise(request, policy, before, loaded, context)
}

/// Changes the newest revision, as it is under the sandbox's lock: whoever wrote meanwhile is built upon. A policy
/// given at creation is a revision from then on.
pub(super) fn merge(
    request: &UpdateConfigRequest,
    operations: &[PolicyMergeOperation],
    loaded: &Loaded,
    context: &Context<'_>,
) -> Result<Decision, Refusal> {
    let before = changeable(request, loaded)?;
    let latest = loaded.policy.as_ref().ok_or_else(|| {
        Refusal::precondition(
            "the sandbox has no policy yet that could be changed; set a whole one, or wait for its supervisor's",
        )
    })?;
    let merged = merge::apply(&latest.policy, operations)?;
    revise(request, &merged, before, loaded, context)
}

/// The sandbox, if its policy may be written now.
fn changeable<'a>(request: &UpdateConfigRequest, loaded: &'a Loaded) -> Result<&'a row::Sandbox, Refusal> {
    let row = session::named(loaded, &request.sandbox)?;
    session::not_deleting(row)?;
    at_version(request.expected_resource_version, row.resource_version)?;
    refuse_under_global_policy(loaded)?;
    Ok(row)
}

/// The newest revision if it says the same with the same provenance, else the next one.
fn revise(
    request: &UpdateConfigRequest,
    policy: &SandboxPolicy,
    before: &row::Sandbox,
    loaded: &Loaded,
    context: &Context<'_>,
) -> Result<Decision, Refusal> {
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
fn acceptable(policy: &SandboxPolicy, row: &row::Sandbox, loaded: &Loaded) -> Result<SandboxPolicy, Refusal> {
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

    use roadstead_proto::api::v1::policy_merge_operation::Operation;
    use roadstead_proto::api::v1::{AddNetworkRule, RemoveNetworkRule};

    use super::*;
    use crate::operation::Operation as _;
    use crate::sample::{self, World};

    pub(crate) fn policy(host: &str) -> SandboxPolicy {
        let endpoint = NetworkEndpoint { host: host.into(), port: 443, ..Default::default() };
        let rule = NetworkPolicyRule { endpoints: vec![endpoint], ..Default::default() };
        SandboxPolicy { network_policies: [("web".to_owned(), rule)].into(), ..Default::default() }
    }

    fn request_of(sandbox: &str) -> UpdateConfigRequest {
        UpdateConfigRequest { sandbox: sandbox.into(), ..Default::default() }
    }

    fn request(policy: SandboxPolicy) -> UpdateConfigRequest {
        UpdateConfigRequest { policy: Some(policy), ..request_of("s") }
    }

    fn removing(rule_name: &str) -> PolicyMergeOperation {
        let remove = RemoveNetworkRule { rule_name: rule_name.into() };
        PolicyMergeOperation { operation: Some(Operation::RemoveRule(remove)) }
    }

    fn merging(rule_name: &str, host: &str) -> UpdateConfigRequest {
        let rule = policy(host).network_policies.remove("web");
        let add = Operation::AddRule(AddNetworkRule { rule_name: rule_name.into(), rule });
        UpdateConfigRequest { merge_operations: vec![PolicyMergeOperation { operation: Some(add) }], ..request_of("s") }
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
    fn operations_change_the_newest_revision_and_build_the_next_one() {
        let first =
            inserted(&decide(&request(policy("a.example.com")), &found(sample::sandbox("s"), None)).unwrap()).clone();
        let loaded = found(sample::sandbox("s"), Some(first));
        let decision = decide(&merging("other", "b.example.com"), &loaded).unwrap();
        let second = inserted(&decision).clone();
        let both = ["other", "web"];
        assert_eq!(second.policy.network_policies.keys().collect::<Vec<_>>(), both);
        assert_eq!((second.version, second.status), (2, PolicyStatus::Pending));
        assert_eq!(second.hash, canonical::hash(&second.policy));
        // Once more is the same, but said by somebody else it is another revision.
        let loaded = found(sample::sandbox("s"), Some(second.clone()));
        let again = merging("other", "b.example.com");
        assert!(decide(&again, &loaded).unwrap().writes.is_empty());
        let annotated = UpdateConfigRequest { annotations: [("by".to_owned(), "ann".to_owned())].into(), ..again };
        let decision = decide(&annotated, &loaded).unwrap();
        let [Write::UpdateSandbox(row), Write::InsertPolicyRevision(third)] = decision.writes.as_slice() else {
            panic!("{:?}", decision.writes)
        };
        assert_eq!((third.version, &third.hash, &third.provenance), (3, &second.hash, &annotated.annotations));
        assert_eq!((row.annotations["by"].as_str(), row.resource_version), ("ann", 2));
    }

    #[test]
    fn operations_need_a_policy_to_change_and_a_whole_that_is_good() {
        let refused = decide(&merging("web", "a.example.com"), &found(sample::sandbox("s"), None)).unwrap_err();
        assert!(matches!(&refused, Refusal::Precondition(text) if text.contains("no policy yet")), "{refused}");

        let first =
            revision(&sample::sandbox("s"), policy("a.example.com"), "h".into(), row::Pairs::new(), &sample::nothing());
        let loaded = found(sample::sandbox("s"), Some(first));
        let mut bound = merging("other", "b.example.com");
        let Some(Operation::AddRule(add)) = &mut bound.merge_operations[0].operation else { panic!() };
        let endpoint = &mut add.rule.as_mut().unwrap().endpoints[0];
        endpoint.protocol = "rest".into();
        endpoint.credential_binding = Some(NetworkCredentialBinding { provider: "p".into() });
        let refused = decide(&bound, &loaded).unwrap_err();
        assert!(matches!(&refused, Refusal::Precondition(text) if text.contains("not attached")), "{refused}");

        let stale = UpdateConfigRequest { expected_resource_version: 5, ..merging("web", "a.example.com") };
        assert!(matches!(decide(&stale, &loaded), Err(Refusal::VersionConflict { current: 1 })));
        let twice = UpdateConfigRequest { merge_operations: vec![removing("web"), removing("web")], ..request_of("s") };
        let refused = decide(&twice, &loaded).unwrap_err().to_string();
        assert!(refused.starts_with("merge_operations[1].remove_rule.rule_name: "), "{refused}");
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
