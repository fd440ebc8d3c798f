//! Workload templates. They never change, so nothing updates them.

use uuid::Uuid;

use crate::fields::{Fields, Malformed, only};
use crate::flight::Step;
use crate::mutation::{ByName, Lock};
use crate::parameter::{count, message, pairs, time, value};
use crate::row::WorkloadTemplate;
use tokio_postgres::Row;

macro_rules! columns {
    () => {
        "t.id, t.workspace_id, t.workspace_name, t.name, t.labels, t.annotations, t.resource_version, t.created_at, \
         t.spec"
    };
}
pub(crate) use columns;

const LOCK_SHARE: &str =
    concat!("SELECT ", columns!(), " FROM workload_template t WHERE t.workspace_name = $1 AND t.name = $2 FOR SHARE");
const LOCK_UPDATE: &str =
    concat!("SELECT ", columns!(), " FROM workload_template t WHERE t.workspace_name = $1 AND t.name = $2 FOR UPDATE");

const COUNT: &str = "SELECT count(*) FROM workload_template WHERE workspace_name = $1";

const INSERT: &str = "INSERT INTO workload_template (id, workspace_id, workspace_name, name, labels, annotations,
        resource_version, created_at, spec)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";

const DELETE: &str = "WITH hit AS (DELETE FROM workload_template WHERE id = $1 RETURNING 1)
    SELECT roadstead.must_hit(count(*), 'workload template') FROM hit";

pub(crate) fn lock(workspace: &str, template: &ByName) -> Step {
    let sql = match template.lock {
        Lock::Share => LOCK_SHARE,
        Lock::Update => LOCK_UPDATE,
    };
    Step::new(sql, [value(workspace.to_owned()), value(template.name.clone())])
}

pub(crate) fn count_of(workspace: &str) -> Step {
    Step::new(COUNT, [value(workspace.to_owned())])
}

pub(crate) fn insert(row: WorkloadTemplate) -> Step {
    Step::new(
        INSERT,
        [
            value(row.id),
            value(row.workspace_id),
            value(row.workspace_name),
            value(row.name),
            pairs(row.labels),
            pairs(row.annotations),
            count(row.resource_version),
            time(row.created_at),
            message(&row.spec),
        ],
    )
}

pub(crate) fn delete(id: Uuid) -> Step {
    Step::new(DELETE, [value(id)])
}

pub(crate) fn read(fields: &mut Fields<'_>) -> Result<WorkloadTemplate, Malformed> {
    Ok(WorkloadTemplate {
        id: fields.take()?,
        workspace_id: fields.take()?,
        workspace_name: fields.take()?,
        name: fields.take()?,
        labels: fields.pairs()?,
        annotations: fields.pairs()?,
        resource_version: fields.count()?,
        created_at: fields.time()?,
        spec: fields.message()?,
    })
}

pub(crate) fn read_count(rows: &[Row]) -> Result<u64, Malformed> {
    only(rows, |fields| fields.count())
}
