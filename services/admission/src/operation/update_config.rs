//! `UpdateConfig`: a whole policy or one setting, of a sandbox or of the deployment, and a supervisor's policy sync.

mod global_policy;
mod sandbox_policy;
mod setting;
mod sync;

use bytes::Bytes;
use prost::Message as _;
use roadstead_policy::settings::{self, POLICY_KEY};
use roadstead_proto::api::sandbox::{SandboxPolicy, SettingValue};
use roadstead_proto::api::v1::{UpdateConfigRequest, UpdateConfigResponse};
use roadstead_proto::internal::Receipt;
use roadstead_store::mutation::{Loaded, Locks, Reads, Sandboxes, Write};
use roadstead_store::row;
use uuid::Uuid;

use super::{Decision, Operation, session};
use crate::caller::Caller;
use crate::context::Context;
use crate::ledger::Address;
use crate::ledger::replay::{self, RECEIPT_BYTES};
use crate::phase::change_id;
use crate::refusal::Refusal;
use crate::validate::{label, name};

/// The one thing that a request changes.
#[derive(Clone, Copy, Debug)]
enum Change<'a> {
    Policy(&'a SandboxPolicy),
    Set(&'a str, &'a SettingValue),
    Delete(&'a str),
}

impl Operation for UpdateConfigRequest {
    fn address(&self) -> Address<'_> {
        let scope = self.workspace_scope.as_ref();
        if self.global { Address::Global(scope) } else { Address::Workspace(scope) }
    }

    fn request_id(&self) -> &str {
        &self.request_id
    }

    fn plan(&self, locks: Locks, context: &Context<'_>) -> Result<Locks, Refusal> {
        if let Caller::Sandbox { id, .. } = context.caller {
            sync::check(self)?;
            let reads = Reads { policy: true, global_policy: true, global_settings: true, ..locks.reads };
            return Ok(Locks { sandboxes: Sandboxes::ById(*id), reads, ..locks });
        }
        let change = change(self)?;
        label::annotations(&self.annotations)?;
        if self.global {
            check_global(self, change)?;
            let reads = Reads { global_policy: true, global_settings: true, ..locks.reads };
            return Ok(Locks { global: true, reads, ..locks });
        }
        name::label("sandbox", &self.sandbox)?;
        check_setting(change)?;
        let reads = match change {
            Change::Policy(_) => Reads { policy: true, global_policy: true, global_settings: true, ..locks.reads },
            Change::Set(..) | Change::Delete(_) => {
                Reads { sandbox_settings: true, global_settings: true, ..locks.reads }
            }
        };
        Ok(Locks { sandboxes: Sandboxes::Named(self.sandbox.clone()), reads, ..locks })
    }

    fn decide(&self, loaded: &Loaded, context: &Context<'_>) -> Result<Decision, Refusal> {
        if matches!(context.caller, Caller::Sandbox { .. }) {
            return sync::decide(self, loaded, context);
        }
        match (change(self)?, self.global) {
            (Change::Policy(policy), false) => sandbox_policy::decide(self, policy, loaded, context),
            (Change::Policy(policy), true) => Ok(global_policy::set(policy, loaded)),
            (Change::Delete(POLICY_KEY), true) => Ok(global_policy::delete(loaded)),
            (change, false) => setting::of_sandbox(self, change, loaded),
            (change, true) => Ok(setting::of_deployment(change, loaded)),
        }
    }

    fn replay(&self, receipt: &Receipt, loaded: &Loaded, _: &Context<'_>) -> Option<Bytes> {
        Some(replay::encoded(replay::config_scalars(receipt, loaded)?))
    }
}

fn change(request: &UpdateConfigRequest) -> Result<Change<'_>, Refusal> {
    let setting = Some(request.setting_key.as_str()).filter(|key| !key.is_empty());
    let one = "exactly one of policy, setting_key and merge_operations is required";
    let change = match (&request.policy, setting, request.merge_operations.is_empty()) {
        (Some(policy), None, true) => Change::Policy(policy),
        (None, Some(key), true) if request.delete_setting => Change::Delete(key),
        (None, Some(key), true) => match &request.setting_value {
            Some(value) => Change::Set(key, value),
            None => return Err(Refusal::invalid("setting_value", "required")),
        },
        (None, None, false) if request.global => {
            return Err(Refusal::invalid("merge_operations", "must be left out of a global call"));
        }
        (None, None, false) => return Err(Refusal::Unserved("merge_operations")),
        _ => return Err(Refusal::invalid("policy", one)),
    };
    let alone = match change {
        Change::Policy(_) => !request.delete_setting && request.setting_value.is_none(),
        Change::Delete(_) => request.setting_value.is_none(),
        Change::Set(..) => true,
    };
    if alone { Ok(change) } else { Err(Refusal::invalid("setting_value", "does not go with what is asked for")) }
}

fn check_setting(change: Change<'_>) -> Result<(), Refusal> {
    match change {
        Change::Policy(_) => Ok(()),
        Change::Set(key, value) => Ok(settings::check(key, Some(value))?),
        Change::Delete(key) => Ok(settings::check_key(key)?),
    }
}

fn check_global(request: &UpdateConfigRequest, change: Change<'_>) -> Result<(), Refusal> {
    for (field, given) in [
        ("sandbox", !request.sandbox.is_empty()),
        ("annotations", !request.annotations.is_empty()),
        ("expected_resource_version", request.expected_resource_version != 0),
    ] {
        if given {
            return Err(Refusal::invalid(field, "must be left out of a global call"));
        }
    }
    match change {
        Change::Policy(policy) => global_policy::check(policy),
        Change::Delete(POLICY_KEY) => Ok(()),
        change => check_setting(change),
    }
}

/// The newest revision of the global policy, while the setting that puts it in force stands.
pub(super) fn in_force(loaded: &Loaded) -> Option<&row::PolicyRevision> {
    loaded.global_policy.as_ref().filter(|_| loaded.global_settings.values.contains_key(POLICY_KEY))
}

fn refuse_under_global_policy(loaded: &Loaded) -> Result<(), Refusal> {
    match in_force(loaded) {
        None => Ok(()),
        Some(_) => Err(Refusal::precondition(
            "policies are managed globally; delete the global policy before setting a sandbox's own",
        )),
    }
}

/// The sandbox with its annotations merged, and whether they changed.
fn annotated(row: &row::Sandbox, request: &UpdateConfigRequest) -> Result<(row::Sandbox, bool), Refusal> {
    let mut row = row.clone();
    let before = row.annotations.clone();
    row.annotations.extend(request.annotations.clone());
    let changed = row.annotations != before;
    if changed {
        label::annotations(&row.annotations)?;
        super::fits(&row)?;
    }
    Ok((row, changed))
}

/// Notes on a sandbox that its configuration changed, and raises its version.
fn reconfigured(row: &mut row::Sandbox, cause: &str, loaded: &Loaded, context: &Context<'_>) -> Write {
    let provisioning = row.status.provisioning.get_or_insert_default();
    provisioning.configuration_change_id = change_id(cause, context.ids.fresh());
    provisioning.configuration_change_time = Some(roadstead_store::view::timestamp(loaded.now));
    session::updated(row)
}

/// A success. Annotations that are too large to be kept are left out of the receipt.
fn written(writes: Vec<Write>, sandbox: Option<Uuid>, response: UpdateConfigResponse) -> Decision {
    let mut receipt = replay::config(sandbox, response.clone());
    if receipt.encoded_len() > RECEIPT_BYTES {
        let scalars = UpdateConfigResponse { annotations: row::Pairs::new(), ..response.clone() };
        receipt = replay::config(sandbox, scalars);
    }
    Decision::new(writes, &response, receipt)
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::sandbox::setting_value::Value;
    use roadstead_proto::api::v1::PolicyMergeOperation;

    use super::*;
    use crate::sample::World;

    fn flag() -> Option<SettingValue> {
        Some(SettingValue { value: Some(Value::BoolValue(true)) })
    }

    fn base() -> UpdateConfigRequest {
        UpdateConfigRequest { sandbox: "s".into(), ..Default::default() }
    }

    fn plan(request: &UpdateConfigRequest) -> Result<Locks, Refusal> {
        request.plan(Locks::default(), &World::admin().context())
    }

    #[test]
    fn exactly_one_thing_is_changed_at_a_time() {
        let policy = Some(SandboxPolicy::default());
        let setting_key = "ocsf_json_enabled".to_owned();
        assert!(plan(&UpdateConfigRequest { policy: policy.clone(), ..base() }).is_ok());
        assert!(
            plan(&UpdateConfigRequest { setting_key: setting_key.clone(), setting_value: flag(), ..base() }).is_ok()
        );
        assert!(
            plan(&UpdateConfigRequest { setting_key: setting_key.clone(), delete_setting: true, ..base() }).is_ok()
        );
        for bad in [
            base(),
            UpdateConfigRequest { policy: policy.clone(), setting_key: setting_key.clone(), ..base() },
            UpdateConfigRequest { policy, delete_setting: true, ..base() },
            UpdateConfigRequest { setting_key: setting_key.clone(), ..base() },
            UpdateConfigRequest { setting_key, setting_value: flag(), delete_setting: true, ..base() },
            UpdateConfigRequest { delete_setting: true, ..base() },
        ] {
            assert!(matches!(plan(&bad), Err(Refusal::Invalid { .. })), "{bad:?}");
        }
    }

    #[test]
    fn merging_is_named_as_not_served() {
        let merge_operations = vec![PolicyMergeOperation::default()];
        let refused = plan(&UpdateConfigRequest { merge_operations, ..base() }).unwrap_err();
        assert_eq!(refused, Refusal::Unserved("merge_operations"));
    }

    #[test]
    fn a_global_call_names_nothing_of_a_sandbox() {
        let global = || UpdateConfigRequest {
            global: true,
            setting_key: "ocsf_json_enabled".into(),
            setting_value: flag(),
            ..Default::default()
        };
        assert!(plan(&global()).unwrap().global);
        for bad in [
            UpdateConfigRequest { sandbox: "s".into(), ..global() },
            UpdateConfigRequest { annotations: [("a".to_owned(), String::new())].into(), ..global() },
            UpdateConfigRequest { expected_resource_version: 1, ..global() },
            UpdateConfigRequest { setting_key: "policy".into(), ..global() },
            UpdateConfigRequest { setting_key: "unknown".into(), ..global() },
        ] {
            assert!(matches!(plan(&bad), Err(Refusal::Invalid { .. })), "{bad:?}");
        }
    }

    #[test]
    fn annotations_that_are_too_large_for_a_receipt_are_not_kept_in_it() {
        let annotations = (0..20).map(|at| (format!("k{at}"), "x".repeat(8000))).collect();
        let response = UpdateConfigResponse { version: 3, annotations, ..Default::default() };
        let decision = written(Vec::new(), None, response);
        assert!(decision.receipt.encoded_len() <= RECEIPT_BYTES);
    }
}
