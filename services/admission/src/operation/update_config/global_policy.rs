//! The policy of the deployment, which replaces every sandbox's own. Its newest revision is in force while it is
//! LOADED; deleting the policy marks that revision SUPERSEDED.

use roadstead_policy::{canonical, check};
use roadstead_proto::api::sandbox::SandboxPolicy;
use roadstead_proto::api::v1::{PolicyStatus, UpdateConfigResponse};
use roadstead_store::mutation::{Loaded, Write};
use roadstead_store::row;

use super::{in_force, written};
use crate::operation::Decision;
use crate::refusal::Refusal;

pub(super) fn check(policy: &SandboxPolicy) -> Result<(), Refusal> {
    Ok(check::policy(policy, check::Scope::Global)?)
}

pub(super) fn set(policy: &SandboxPolicy, loaded: &Loaded) -> Decision {
    let policy = canonical::authored(policy.clone());
    let hash = canonical::hash(&policy);
    if let Some(same) = in_force(loaded).filter(|revision| revision.hash == hash) {
        return written(Vec::new(), None, response(same));
    }
    let revision = row::PolicyRevision {
        scope: None,
        version: loaded.global_policy.as_ref().map_or(1, |latest| latest.version.saturating_add(1)),
        hash,
        policy,
        status: PolicyStatus::Loaded,
        load_error: String::new(),
        created_at: loaded.now,
        loaded_at: Some(loaded.now),
        provenance: row::Pairs::new(),
    };
    let response = response(&revision);
    let settle = settle(revision.version, PolicyStatus::Loaded);
    written(vec![Write::InsertPolicyRevision(revision), settle], None, response)
}

pub(super) fn delete(loaded: &Loaded) -> Decision {
    let Some(revision) = in_force(loaded) else {
        let settings_revision = loaded.global_settings.revision;
        return written(Vec::new(), None, UpdateConfigResponse { settings_revision, ..Default::default() });
    };
    let settings_revision = loaded.global_settings.revision + 1;
    let writes = vec![
        settle(revision.version, PolicyStatus::Superseded),
        Write::SetSettingsRevision { scope: None, revision: settings_revision },
    ];
    written(writes, None, UpdateConfigResponse { settings_revision, deleted: true, ..Default::default() })
}

const fn settle(version: u32, status: PolicyStatus) -> Write {
    Write::SettlePolicy { scope: None, version, status, error: String::new() }
}

fn response(revision: &row::PolicyRevision) -> UpdateConfigResponse {
    UpdateConfigResponse { version: revision.version, policy_hash: revision.hash.clone(), ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn set_first() -> row::PolicyRevision {
        let decision = set(&SandboxPolicy::default(), &sample::nothing());
        match decision.writes.as_slice() {
            [Write::InsertPolicyRevision(revision), Write::SettlePolicy { version: 1, .. }] => revision.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_global_policy_is_in_force_at_once_and_equal_content_writes_nothing() {
        let first = set_first();
        assert_eq!((first.version, first.status), (1, PolicyStatus::Loaded));
        let loaded = Loaded { global_policy: Some(first), ..sample::nothing() };
        assert!(set(&SandboxPolicy::default(), &loaded).writes.is_empty());
    }

    #[test]
    fn deleting_it_supersedes_it_and_setting_it_again_is_a_new_revision() {
        let first = set_first();
        let loaded = Loaded { global_policy: Some(first.clone()), ..sample::nothing() };
        let deleted = delete(&loaded);
        assert!(matches!(
            deleted.writes.as_slice(),
            [
                Write::SettlePolicy { version: 1, status: PolicyStatus::Superseded, .. },
                Write::SetSettingsRevision { scope: None, revision: 1 }
            ]
        ));
        let gone = row::PolicyRevision { status: PolicyStatus::Superseded, ..first };
        let loaded = Loaded { global_policy: Some(gone), ..sample::nothing() };
        assert!(delete(&loaded).writes.is_empty());
        let again = set(&SandboxPolicy::default(), &loaded);
        assert!(matches!(&again.writes[0], Write::InsertPolicyRevision(revision) if revision.version == 2));
    }
}
