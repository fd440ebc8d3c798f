//! The policy of the deployment, which replaces every sandbox's own. It is in force while the global setting `policy`
//! stands, whose value is the hash; deleting that setting takes it out of force.

use roadstead_policy::settings::POLICY_KEY;
use roadstead_policy::{canonical, check};
use roadstead_proto::api::sandbox::{SandboxPolicy, SettingValue, setting_value::Value};
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
    let value = SettingValue { value: Some(Value::StringValue(revision.hash.clone())) };
    let settle = settle(revision.version, PolicyStatus::Loaded);
    let writes = vec![
        Write::InsertPolicyRevision(revision),
        settle,
        Write::PutSetting { scope: None, key: POLICY_KEY.to_owned(), value },
        Write::SetSettingsRevision { scope: None, revision: loaded.global_settings.revision + 1 },
    ];
    written(writes, None, response)
}

pub(super) fn delete(loaded: &Loaded) -> Decision {
    let revision = loaded.global_settings.revision;
    let Some(policy) = in_force(loaded) else {
        return written(Vec::new(), None, UpdateConfigResponse { settings_revision: revision, ..Default::default() });
    };
    let settings_revision = revision + 1;
    let writes = vec![
        settle(policy.version, PolicyStatus::Superseded),
        Write::DeleteSetting { scope: None, key: POLICY_KEY.to_owned() },
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

    /// What is found once `decision` is written on top of nothing.
    fn after(decision: &Decision) -> Loaded {
        let mut loaded = sample::nothing();
        for write in &decision.writes {
            match write {
                Write::InsertPolicyRevision(revision) => loaded.global_policy = Some(revision.clone()),
                Write::PutSetting { key, value, .. } => {
                    _ = loaded.global_settings.values.insert(key.clone(), value.clone());
                }
                Write::SetSettingsRevision { revision, .. } => loaded.global_settings.revision = *revision,
                Write::SettlePolicy { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        loaded
    }

    #[test]
    fn a_global_policy_is_in_force_at_once_and_equal_content_writes_nothing() {
        let loaded = after(&set(&SandboxPolicy::default(), &sample::nothing()));
        let policy = in_force(&loaded).unwrap();
        assert_eq!((policy.version, policy.status, loaded.global_settings.revision), (1, PolicyStatus::Loaded, 1));
        assert!(set(&SandboxPolicy::default(), &loaded).writes.is_empty());
    }

    #[test]
    fn deleting_it_takes_it_out_of_force_and_setting_it_again_is_a_new_revision() {
        let mut loaded = after(&set(&SandboxPolicy::default(), &sample::nothing()));
        assert!(matches!(
            delete(&loaded).writes.as_slice(),
            [
                Write::SettlePolicy { version: 1, status: PolicyStatus::Superseded, .. },
                Write::DeleteSetting { scope: None, .. },
                Write::SetSettingsRevision { scope: None, revision: 2 }
            ]
        ));
        loaded.global_settings.values.clear();
        assert!(delete(&loaded).writes.is_empty());
        let again = set(&SandboxPolicy::default(), &loaded);
        assert!(matches!(&again.writes[0], Write::InsertPolicyRevision(revision) if revision.version == 2));
    }
}
