//! Workspaces.

use tokio_postgres::Row;
use uuid::Uuid;

use crate::fields::{Fields, Malformed, all};
use crate::flight::Step;
use crate::mutation::Lock;
use crate::parameter::{count, optional_time, pairs, time, value};
use crate::row::Workspace;

macro_rules! columns {
    () => {
        "w.id, w.name, w.labels, w.resource_version, w.created_at, w.terminating_since"
    };
}
pub(crate) use columns;

/// How many there are.
pub(crate) const COLUMNS: usize = 6;

const LOCK_SHARE: &str = concat!("SELECT ", columns!(), " FROM workspace w WHERE w.name = $1 FOR SHARE");
const LOCK_UPDATE: &str = concat!("SELECT ", columns!(), " FROM workspace w WHERE w.name = $1 FOR UPDATE");
const BY_ID: &str = concat!("SELECT ", columns!(), " FROM workspace w WHERE w.id = $1");

const BLOCKERS: &str = "SELECT 'sandbox' WHERE EXISTS (SELECT FROM sandbox WHERE workspace_name = $1)
    UNION ALL SELECT 'provider' WHERE EXISTS (SELECT FROM provider WHERE workspace_name = $1)
    UNION ALL SELECT 'service' WHERE EXISTS (SELECT FROM service_endpoint WHERE workspace_name = $1)
    UNION ALL SELECT 'template' WHERE EXISTS (SELECT FROM workload_template WHERE workspace_name = $1)";

const INSERT: &str = "INSERT INTO workspace (id, name, labels, resource_version, created_at, terminating_since)
    VALUES ($1, $2, $3, $4, $5, $6)";

const UPDATE: &str = "WITH hit AS (
        UPDATE workspace SET labels = $2, resource_version = $3, terminating_since = $4
        WHERE id = $1 AND resource_version = $3::bigint - 1 RETURNING 1
    ) SELECT roadstead.must_hit(count(*), 'workspace') FROM hit";

const DELETE: &str = "WITH hit AS (DELETE FROM workspace WHERE id = $1 RETURNING 1)
    SELECT roadstead.must_hit(count(*), 'workspace') FROM hit";

pub(crate) fn lock(name: &str, lock: Lock) -> Step {
    let sql = match lock {
        Lock::Share => LOCK_SHARE,
        Lock::Update => LOCK_UPDATE,
    };
    Step::new(sql, [value(name.to_owned())])
}

pub(crate) fn by_id(id: Uuid) -> Step {
    Step::new(BY_ID, [value(id)])
}

/// Kinds of objects in the workspace that do not go with it.
pub(crate) fn blockers(name: &str) -> Step {
    Step::new(BLOCKERS, [value(name.to_owned())])
}

pub(crate) fn insert(row: Workspace) -> Step {
    Step::new(
        INSERT,
        [
            value(row.id),
            value(row.name),
            pairs(row.labels),
            count(row.resource_version),
            time(row.created_at),
            optional_time(row.terminating_since),
        ],
    )
}

pub(crate) fn update(row: Workspace) -> Step {
    Step::new(
        UPDATE,
        [value(row.id), pairs(row.labels), count(row.resource_version), optional_time(row.terminating_since)],
    )
}

pub(crate) fn delete(id: Uuid) -> Step {
    Step::new(DELETE, [value(id)])
}

pub(crate) fn read(fields: &mut Fields<'_>) -> Result<Workspace, Malformed> {
    Ok(Workspace {
        id: fields.take()?,
        name: fields.take()?,
        labels: fields.pairs()?,
        resource_version: fields.count()?,
        created_at: fields.time()?,
        terminating_since: fields.take()?,
    })
}

pub(crate) fn kinds(rows: &[Row]) -> Result<Vec<String>, Malformed> {
    all(rows, |fields| fields.take())
}
