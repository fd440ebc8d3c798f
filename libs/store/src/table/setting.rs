//! Settings and the revision of each scope's settings. The row of the nil scope is the lock of everything global.

use prost::Message;
use roadstead_proto::api::sandbox::SettingValue;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::fields::{Fields, Malformed};
use crate::flight::Step;
use crate::parameter::{count, message, scope, value};
use crate::row::Settings;

const LOCK_GLOBAL: &str =
    "SELECT revision FROM settings_revision WHERE scope = '00000000-0000-0000-0000-000000000000' FOR UPDATE";

const GLOBAL: &str = "SELECT r.revision, v.key, v.value FROM settings_revision r LEFT JOIN setting v USING (scope)
    WHERE r.scope = '00000000-0000-0000-0000-000000000000'";

const PUT: &str = "INSERT INTO setting (scope, key, value) VALUES ($1, $2, $3)
    ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value";

const DELETE: &str = "WITH hit AS (DELETE FROM setting WHERE scope = $1 AND key = $2 RETURNING 1)
    SELECT roadstead.must_hit(count(*), 'setting') FROM hit";

const SET_REVISION: &str = "WITH hit AS (
        INSERT INTO settings_revision AS r (scope, revision)
        SELECT $1::uuid, $2::bigint WHERE $2::bigint = 1 OR EXISTS (SELECT FROM settings_revision WHERE scope = $1)
        ON CONFLICT (scope) DO UPDATE SET revision = excluded.revision WHERE r.revision = excluded.revision - 1
        RETURNING 1
    ) SELECT roadstead.must_hit(count(*), 'settings revision') FROM hit";

pub(crate) fn lock_global() -> Step {
    Step::plain(LOCK_GLOBAL)
}

pub(crate) fn global() -> Step {
    Step::plain(GLOBAL)
}

pub(crate) fn put(of: Option<Uuid>, key: String, setting: &SettingValue) -> Step {
    Step::new(PUT, [scope(of), value(key), message(setting)])
}

pub(crate) fn delete(of: Option<Uuid>, key: String) -> Step {
    Step::new(DELETE, [scope(of), value(key)])
}

pub(crate) fn set_revision(of: Option<Uuid>, revision: u64) -> Step {
    Step::new(SET_REVISION, [scope(of), count(revision)])
}

/// From rows of revision, key and value; the last two are null if there is no setting.
pub(crate) fn read(rows: &[Row]) -> Result<Settings, Malformed> {
    let mut settings = Settings::default();
    for row in rows {
        let mut fields = Fields::of(row);
        settings.revision = fields.count()?;
        let (key, value): (Option<String>, Option<&[u8]>) = (fields.take()?, fields.take()?);
        if let Some((key, value)) = key.zip(value) {
            let value = SettingValue::decode(value).map_err(|error| Malformed(error.to_string()))?;
            settings.values.insert(key, value);
        }
    }
    Ok(settings)
}
