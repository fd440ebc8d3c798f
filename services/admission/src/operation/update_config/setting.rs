//! One setting, of a sandbox or of the deployment.

use roadstead_proto::api::v1::{UpdateConfigRequest, UpdateConfigResponse};
use roadstead_store::mutation::{Loaded, Write};
use roadstead_store::row::Settings;
use uuid::Uuid;

use super::{Change, annotated, written};
use crate::operation::{Decision, at_version, session};
use crate::refusal::{Refusal, Shown};

pub(super) fn of_sandbox(
    request: &UpdateConfigRequest,
    change: Change<'_>,
    loaded: &Loaded,
) -> Result<Decision, Refusal> {
    let before = session::named(loaded, &request.sandbox)?;
    session::not_deleting(before)?;
    at_version(request.expected_resource_version, before.resource_version)?;
    if loaded.global_settings.values.contains_key(key(change)) {
        let key = Shown(key(change));
        return Err(Refusal::precondition(format!("setting {key} is managed globally; delete it there first")));
    }
    let (mut row, changed) = annotated(before, request)?;
    let Applied { mut writes, revision, deleted } = apply(change, Some(row.id), &loaded.sandbox_settings);
    if changed {
        writes.push(session::updated(&mut row));
    }
    let annotations = row.annotations.clone();
    let response = UpdateConfigResponse { settings_revision: revision, deleted, annotations, ..Default::default() };
    Ok(written(writes, Some(row.id), response))
}

pub(super) fn of_deployment(change: Change<'_>, loaded: &Loaded) -> Decision {
    let Applied { writes, revision, deleted } = apply(change, None, &loaded.global_settings);
    written(writes, None, UpdateConfigResponse { settings_revision: revision, deleted, ..Default::default() })
}

struct Applied {
    writes: Vec<Write>,
    /// Of the scope, after the writes.
    revision: u64,
    deleted: bool,
}

fn apply(change: Change<'_>, scope: Option<Uuid>, settings: &Settings) -> Applied {
    let key = key(change).to_owned();
    let known = settings.values.get(&key);
    let (write, deleted) = match change {
        Change::Set(_, value) if known != Some(value) => {
            (Some(Write::PutSetting { scope, key, value: value.clone() }), false)
        }
        Change::Delete(_) if known.is_some() => (Some(Write::DeleteSetting { scope, key }), true),
        Change::Set(..) | Change::Delete(_) | Change::Policy(_) | Change::Merge(_) => (None, false),
    };
    let Some(write) = write else {
        return Applied { writes: Vec::new(), revision: settings.revision, deleted };
    };
    let revision = settings.revision + 1;
    Applied { writes: vec![write, Write::SetSettingsRevision { scope, revision }], revision, deleted }
}

const fn key<'a>(change: Change<'a>) -> &'a str {
    match change {
        Change::Set(key, _) | Change::Delete(key) => key,
        Change::Policy(_) | Change::Merge(_) => "",
    }
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::sandbox::{SettingValue, setting_value::Value};

    use super::*;
    use crate::sample;

    const KEY: &str = "ocsf_json_enabled";

    fn flag(on: bool) -> SettingValue {
        SettingValue { value: Some(Value::BoolValue(on)) }
    }

    fn settings(revision: u64, on: Option<bool>) -> Settings {
        let values = on.map(|on| (KEY.to_owned(), flag(on))).into_iter().collect();
        Settings { revision, values }
    }

    fn request() -> UpdateConfigRequest {
        UpdateConfigRequest { sandbox: "s".into(), ..Default::default() }
    }

    fn found(sandbox_settings: Settings, global_settings: Settings) -> Loaded {
        let sandboxes = vec![sample::sandbox("s")];
        Loaded { sandboxes, sandbox_settings, global_settings, ..sample::in_workspace() }
    }

    #[test]
    fn a_new_value_raises_the_revision_and_an_equal_one_does_not() {
        let loaded = found(settings(4, Some(true)), Settings::default());
        let changed = of_sandbox(&request(), Change::Set(KEY, &flag(false)), &loaded).unwrap();
        assert!(matches!(
            changed.writes.as_slice(),
            [Write::PutSetting { .. }, Write::SetSettingsRevision { revision: 5, .. }]
        ));
        assert!(of_sandbox(&request(), Change::Set(KEY, &flag(true)), &loaded).unwrap().writes.is_empty());
    }

    #[test]
    fn a_deletion_says_whether_there_was_something() {
        let loaded = Loaded { global_settings: settings(2, Some(true)), ..sample::nothing() };
        let deleted = of_deployment(Change::Delete(KEY), &loaded);
        assert!(matches!(deleted.writes.as_slice(), [Write::DeleteSetting { .. }, Write::SetSettingsRevision { .. }]));
        assert!(of_deployment(Change::Delete(KEY), &sample::nothing()).writes.is_empty());
    }

    #[test]
    fn what_is_set_globally_can_be_neither_set_nor_deleted_on_a_sandbox() {
        let loaded = found(settings(1, Some(true)), settings(1, Some(false)));
        for change in [Change::Set(KEY, &flag(true)), Change::Delete(KEY)] {
            let refused = of_sandbox(&request(), change, &loaded).unwrap_err();
            assert!(refused.to_string().contains("is managed"));
        }
    }
}
