//! The registry of settings: which keys exist, of which kind, and which value is in force.

use std::collections::BTreeMap;

use roadstead_proto::api::sandbox::setting_value::Value;
use roadstead_proto::api::sandbox::{EffectiveSetting, SettingScope, SettingValue};

use crate::refusal::{Reason, Refusal};

/// Key that stands for the global policy; it can be deleted, never set as a setting.
pub const POLICY_KEY: &str = "policy";

const TEXT_BYTES: usize = 1024;

/// What a setting may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    Text,
    ApprovalMode,
}

const REGISTRY: [(&str, Kind); 5] = [
    ("agent_policy_proposals_enabled", Kind::Bool),
    ("ocsf_json_enabled", Kind::Bool),
    ("ocsf_schema_version", Kind::Text),
    ("proposal_approval_mode", Kind::ApprovalMode),
    ("providers_v2_enabled", Kind::Bool),
];

/// All registered keys, in order.
pub fn keys() -> impl Iterator<Item = &'static str> {
    REGISTRY.iter().map(|(key, _)| *key)
}

/// Checks a key, for deletion.
///
/// # Errors
/// `ReservedSetting` for `policy`, `UnknownSetting` for what is not registered; field `setting_key`.
pub fn check_key(key: &str) -> Result<(), Refusal> {
    kind(key).map(|_| ())
}

/// Checks a key with its value.
///
/// # Errors
/// As [`check_key`]; `WrongKind` or `TooLong` with field `setting_value`.
pub fn check(key: &str, value: Option<&SettingValue>) -> Result<(), Refusal> {
    let refuse = |reason| Err(Refusal::new("setting_value", reason));
    match (kind(key)?, value.and_then(|value| value.value.as_ref())) {
        (_, None) => refuse(Reason::Missing),
        (Kind::Bool, Some(Value::BoolValue(_))) => Ok(()),
        (Kind::Bool, Some(_)) => refuse(Reason::WrongKind { expected: "a bool" }),
        (Kind::Text, Some(Value::StringValue(text))) if text.len() > TEXT_BYTES => {
            refuse(Reason::TooLong { limit: TEXT_BYTES })
        }
        (Kind::Text, Some(Value::StringValue(_))) => Ok(()),
        (Kind::Text, Some(_)) => refuse(Reason::WrongKind { expected: "a string" }),
        (Kind::ApprovalMode, Some(Value::StringValue(mode))) if mode == "manual" || mode == "auto" => Ok(()),
        (Kind::ApprovalMode, Some(_)) => refuse(Reason::WrongKind { expected: "`manual` or `auto`" }),
    }
}

fn kind(key: &str) -> Result<Kind, Refusal> {
    let refuse = |reason| Err(Refusal::new("setting_key", reason));
    match REGISTRY.iter().find(|(registered, _)| *registered == key) {
        Some((_, kind)) => Ok(*kind),
        None if key == POLICY_KEY => refuse(Reason::ReservedSetting),
        None if key.is_empty() => refuse(Reason::Missing),
        None => refuse(Reason::UnknownSetting),
    }
}

/// The values in force for one sandbox: every registered key, the global value before the sandbox's, none if unset.
#[must_use]
pub fn effective(
    global: &BTreeMap<String, SettingValue>,
    sandbox: &BTreeMap<String, SettingValue>,
) -> BTreeMap<String, EffectiveSetting> {
    let setting = |key: &str| match (global.get(key), sandbox.get(key)) {
        (Some(value), _) => (Some(value.clone()), SettingScope::Global),
        (None, Some(value)) => (Some(value.clone()), SettingScope::Sandbox),
        (None, None) => (None, SettingScope::Unspecified),
    };
    keys()
        .map(|key| {
            let (value, scope) = setting(key);
            (key.to_owned(), EffectiveSetting { value, scope: scope.into() })
        })
        .collect()
}

/// The global settings as the gateway shows them: every registered key, empty where unset.
#[must_use]
pub fn gateway(global: &BTreeMap<String, SettingValue>) -> BTreeMap<String, SettingValue> {
    keys().map(|key| (key.to_owned(), global.get(key).cloned().unwrap_or_default())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flag(on: bool) -> SettingValue {
        SettingValue { value: Some(Value::BoolValue(on)) }
    }

    fn text(text: &str) -> SettingValue {
        SettingValue { value: Some(Value::StringValue(text.into())) }
    }

    fn reason(key: &str, value: &SettingValue) -> Reason {
        check(key, Some(value)).unwrap_err().reason
    }

    #[test]
    fn only_registered_keys_and_kinds_are_taken() {
        assert_eq!(check("ocsf_json_enabled", Some(&flag(true))), Ok(()));
        assert_eq!(check("proposal_approval_mode", Some(&text("auto"))), Ok(()));
        assert_eq!(check("ocsf_schema_version", Some(&text("1.5.0"))), Ok(()));
        assert_eq!(reason("nope", &flag(true)), Reason::UnknownSetting);
        assert_eq!(reason(POLICY_KEY, &flag(true)), Reason::ReservedSetting);
        assert_eq!(reason("ocsf_json_enabled", &text("true")), Reason::WrongKind { expected: "a bool" });
        assert_eq!(reason("ocsf_json_enabled", &SettingValue::default()), Reason::Missing);
        assert_eq!(
            reason("proposal_approval_mode", &text("later")),
            Reason::WrongKind { expected: "`manual` or `auto`" }
        );
        let bytes = SettingValue { value: Some(Value::BytesValue(b"x".as_slice().into())) };
        assert_eq!(reason("ocsf_schema_version", &bytes), Reason::WrongKind { expected: "a string" });
        assert_eq!(reason("ocsf_schema_version", &text(&"x".repeat(1025))), Reason::TooLong { limit: 1024 });
    }

    #[test]
    fn every_key_is_shown_and_the_global_value_wins() {
        let global = [("ocsf_json_enabled".to_owned(), flag(false))].into();
        let sandbox = [
            ("ocsf_json_enabled".to_owned(), flag(true)),
            ("providers_v2_enabled".to_owned(), flag(true)),
            ("no_longer_known".to_owned(), flag(true)),
        ]
        .into();
        let effective = effective(&global, &sandbox);
        assert_eq!(effective.keys().map(String::as_str).collect::<Vec<_>>(), keys().collect::<Vec<_>>());
        let shown = |key: &str| (effective[key].value.clone(), effective[key].scope());
        assert_eq!(shown("ocsf_json_enabled"), (Some(flag(false)), SettingScope::Global));
        assert_eq!(shown("providers_v2_enabled"), (Some(flag(true)), SettingScope::Sandbox));
        assert_eq!(shown("ocsf_schema_version"), (None, SettingScope::Unspecified));
        assert_eq!(gateway(&global).len(), REGISTRY.len());
    }

    #[test]
    fn a_full_set_stays_within_its_budget() {
        let bytes = keys().map(|key| key.len() + TEXT_BYTES + 16).sum::<usize>();
        assert!(2 * bytes <= crate::budget::SETTINGS_BYTES);
    }
}
