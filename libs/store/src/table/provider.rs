//! Providers and their credentials, which are parallel arrays in the provider's row.

use std::time::SystemTime;

use bytes::Bytes;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::fields::{Fields, Malformed, all};
use crate::flight::Step;
use crate::mutation::Lock;
use crate::parameter::{Parameter, count, pairs, time, value, within_range};
use crate::row::{Credential, Provider};

/// The first columns of [`read`]; then come the values of the credentials, or a null array where they are not shown.
macro_rules! columns {
    () => {
        "p.id, p.workspace_id, p.name, p.kind, p.profile_workspace, p.config, p.labels, p.annotations, \
         p.resource_version, p.created_at, p.credential_keys, p.credential_expirations"
    };
}
pub(crate) use columns;

const LOCK_SHARE: &str = concat!(
    "SELECT ",
    columns!(),
    ", p.credential_values FROM provider p WHERE p.workspace_name = $1 AND p.name = ANY ($2) ORDER BY p.id FOR SHARE"
);
const LOCK_UPDATE: &str = concat!(
    "SELECT ",
    columns!(),
    ", p.credential_values FROM provider p WHERE p.workspace_name = $1 AND p.name = ANY ($2) ORDER BY p.id FOR UPDATE"
);
const BY_ID: &str = concat!("SELECT ", columns!(), ", NULL::bytea[] FROM provider p WHERE p.id = $1");

const INSERT: &str = "WITH hit AS (
        INSERT INTO provider (id, workspace_id, name, kind, profile_workspace, config, labels, annotations,
            resource_version, created_at, credential_keys, credential_values, credential_expirations, workspace_name)
        SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, name FROM workspace WHERE id = $2 RETURNING 1
    ) SELECT roadstead.must_hit(count(*), 'workspace of a provider') FROM hit";

const UPDATE: &str = "WITH hit AS (
        UPDATE provider SET kind = $2, profile_workspace = $3, config = $4, labels = $5, annotations = $6,
            resource_version = $7, credential_keys = $8, credential_values = $9, credential_expirations = $10
        WHERE id = $1 AND resource_version = $7::bigint - 1 RETURNING 1
    ) SELECT roadstead.must_hit(count(*), 'provider') FROM hit";

const DELETE: &str = "WITH hit AS (DELETE FROM provider WHERE id = $1 RETURNING 1)
    SELECT roadstead.must_hit(count(*), 'provider') FROM hit";

/// Whoever has one of them writes it, and with that moves it on as well, or comes back to it soon.
const EXPIRE: &str = "UPDATE provider SET next_expiration = NULL WHERE id IN (
        SELECT id FROM provider WHERE next_expiration <= statement_timestamp()
        ORDER BY next_expiration LIMIT $1 FOR UPDATE SKIP LOCKED)";

pub(crate) fn lock(workspace: &str, names: Vec<String>, lock: Lock) -> Step {
    let sql = match lock {
        Lock::Share => LOCK_SHARE,
        Lock::Update => LOCK_UPDATE,
    };
    Step::new(sql, [value(workspace.to_owned()), value(names)])
}

/// Without the values of its credentials.
pub(crate) fn by_id(id: Uuid) -> Step {
    Step::new(BY_ID, [value(id)])
}

pub(crate) fn insert(row: Provider) -> Step {
    let [keys, values, expirations] = credentials(row.credentials);
    Step::new(
        INSERT,
        [
            value(row.id),
            value(row.workspace_id),
            value(row.name),
            value(row.kind),
            value(row.profile_workspace),
            pairs(row.config),
            pairs(row.labels),
            pairs(row.annotations),
            count(row.resource_version),
            time(row.created_at),
            keys,
            values,
            expirations,
        ],
    )
}

pub(crate) fn update(row: Provider) -> Step {
    let [keys, values, expirations] = credentials(row.credentials);
    Step::new(
        UPDATE,
        [
            value(row.id),
            value(row.kind),
            value(row.profile_workspace),
            pairs(row.config),
            pairs(row.labels),
            pairs(row.annotations),
            count(row.resource_version),
            keys,
            values,
            expirations,
        ],
    )
}

pub(crate) fn delete(id: Uuid) -> Step {
    Step::new(DELETE, [value(id)])
}

/// Moves providers of which a credential has expired on to their next expiration; a trigger finds that.
pub(crate) fn expire(most: u32) -> Step {
    Step::new(EXPIRE, [value(i64::from(most))])
}

pub(crate) fn read(fields: &mut Fields<'_>) -> Result<Provider, Malformed> {
    let row = Provider {
        id: fields.take()?,
        workspace_id: fields.take()?,
        name: fields.take()?,
        kind: fields.take()?,
        profile_workspace: fields.take()?,
        config: fields.pairs()?,
        labels: fields.pairs()?,
        annotations: fields.pairs()?,
        resource_version: fields.count()?,
        created_at: fields.time()?,
        credentials: Vec::new(),
    };
    let keys: Vec<String> = fields.take()?;
    let expirations: Vec<Option<SystemTime>> = fields.take()?;
    let values: Option<Vec<Vec<u8>>> = fields.take()?;
    let values = values.unwrap_or_else(|| vec![Vec::new(); keys.len()]);
    let credentials = keys
        .into_iter()
        .zip(values)
        .zip(expirations)
        .map(|((key, value), expires_at)| Credential { key, sealed_value: Bytes::from(value), expires_at })
        .collect();
    Ok(Provider { credentials, ..row })
}

pub(crate) fn read_all(rows: &[Row]) -> Result<Vec<Provider>, Malformed> {
    all(rows, read)
}

/// Keys, values and expirations.
fn credentials(mut credentials: Vec<Credential>) -> [Parameter; 3] {
    credentials.sort_by(|one, other| one.key.cmp(&other.key));
    let expirations: Vec<_> = credentials.iter().map(|known| known.expires_at.map(within_range)).collect();
    let (keys, values): (Vec<_>, Vec<_>) =
        credentials.into_iter().map(|known| (known.key, known.sealed_value.to_vec())).unzip();
    [value(keys), value(values), value(expirations)]
}
