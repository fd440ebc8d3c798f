//! `UpdateConfig`: a whole policy, changes to the one that stands, or one setting; of a sandbox or of the deployment.
//! And a supervisor's policy sync.

mod global_policy;
mod sandbox_policy;
mod setting;
mod sync;

use bytes::Bytes;
use prost::Message as _;
use roadstead_policy::merge;
use roadstead_policy::settings::{self, POLICY_KEY};
use roadstead_proto::api::sandbox::{SandboxPolicy, SettingValue};
use roadstead_proto::api::v1::{PolicyMergeOperation, UpdateConfigRequest, UpdateConfigResponse};
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
    Merge(&'a [PolicyMergeOperation]),
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
        check_shape(change)?;
        let reads = match change {
            Change::Policy(_) | Change::Merge(_) => {
                Reads { policy: true, global_policy: true, global_settings: true, ..locks.reads }
            }
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
            (Change::Policy(policy), false) => sandbox_policy::set(self, policy, loaded, context),
            (Change::Merge(operations), false) => sandbox_policy::merge(self, operations, loaded, context),
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
        (None, None, false) => Change::Merge(&request.merge_operations),
        _ => return Err(Refusal::invalid("policy", one)),
    };
    let alone = match change {
        Change::Policy(_) | Change::Merge(_) => !request.delete_setting && request.setting_value.is_none(),
        Change::Delete(_) => request.setting_value.is_none(),
        Change::Set(..) => true,
    };
    if alone { Ok(change) } else { Err(Refusal::invalid("setting_value", "does not go with what is asked for")) }
}

/// Checks what needs no state. A whole policy is checked with the providers that are attached.
fn check_shape(change: Change<'_>) -> Result<(), Refusal> {
    match change {
        Change::Policy(_) => Ok(()),
        Change::Merge(operations) => Ok(merge::check(operations)?),
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
        change => check_shape(change),
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
    use roadstead_proto::api::v1::{RemoveNetworkRule, policy_merge_operation};

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
    fn merge_operations_go_alone_are_checked_and_are_about_one_sandbox() {
        let operation = |rule_name: &str| {
            let remove = RemoveNetworkRule { rule_name: rule_name.into() };
            PolicyMergeOperation { operation: Some(policy_merge_operation::Operation::RemoveRule(remove)) }
        };
        let merging = |rule_name| UpdateConfigRequest { merge_operations: vec![operation(rule_name)], ..base() };
        assert!(plan(&merging("web")).unwrap().reads.policy);
        for (bad, field) in [
            (merging(""), "merge_operations[0].remove_rule.rule_name"),
            (merging("_provider_x"), "merge_operations[0].remove_rule.rule_name"),
            (UpdateConfigRequest { policy: Some(SandboxPolicy::default()), ..merging("web") }, "policy"),
            (UpdateConfigRequest { setting_key: "ocsf_json_enabled".into(), ..merging("web") }, "policy"),
            (UpdateConfigRequest { delete_setting: true, ..merging("web") }, "setting_value"),
            (UpdateConfigRequest { global: true, sandbox: String::new(), ..merging("web") }, "merge_operations"),
        ] {
            assert!(matches!(plan(&bad), Err(Refusal::Invalid { field: told, .. }) if told == field), "{bad:?}");
        }
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
