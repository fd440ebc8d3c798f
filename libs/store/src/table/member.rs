//! Members of workspaces.

use roadstead_proto::api::v1::WorkspaceRole;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::fields::{Fields, Malformed, all, first, only};
use crate::flight::Step;
use crate::mutation::Lock;
use crate::parameter::{count, number, time, value};
use crate::row::Member;

macro_rules! columns {
    () => {
        "m.id, m.workspace_id, m.subject, m.role, m.resource_version, m.created_at"
    };
}

const ROLE: &str = "SELECT role FROM member WHERE workspace_name = $1 AND subject = $2";

/// A statement of its own behind the workspace's lock: one that waits sees other tables as they were before the wait.
const LOCK_SHARE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM member m WHERE m.workspace_name = $1 AND m.subject = ANY ($2) ORDER BY m.id FOR SHARE"
);
const LOCK_UPDATE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM member m WHERE m.workspace_name = $1 AND m.subject = ANY ($2) ORDER BY m.id FOR UPDATE"
);

const COUNT: &str = "SELECT count(*) FROM member WHERE workspace_name = $1";
const BY_ID: &str = concat!("SELECT ", columns!(), " FROM member m WHERE m.id = $1");

const INSERT: &str = "WITH hit AS (
        INSERT INTO member (id, workspace_id, subject, role, resource_version, created_at, workspace_name)
        SELECT $1, $2, $3, $4, $5, $6, name FROM workspace WHERE id = $2 RETURNING 1
    ) SELECT roadstead.must_hit(count(*), 'workspace of a member') FROM hit";

const DELETE: &str = "WITH hit AS (DELETE FROM member WHERE workspace_id = $1 AND subject = $2 RETURNING 1)
    SELECT roadstead.must_hit(count(*), 'member') FROM hit";

/// The role of `subject`, without a lock.
pub(crate) fn role(workspace: &str, subject: &str) -> Step {
    Step::new(ROLE, [value(workspace.to_owned()), value(subject.to_owned())])
}

pub(crate) fn lock(workspace: &str, subjects: Vec<String>, lock: Lock) -> Step {
    let sql = match lock {
        Lock::Share => LOCK_SHARE,
        Lock::Update => LOCK_UPDATE,
    };
    Step::new(sql, [value(workspace.to_owned()), value(subjects)])
}

pub(crate) fn count_of(workspace: &str) -> Step {
    Step::new(COUNT, [value(workspace.to_owned())])
}

pub(crate) fn by_id(id: Uuid) -> Step {
    Step::new(BY_ID, [value(id)])
}

pub(crate) fn insert(row: Member) -> Step {
    Step::new(
        INSERT,
        [
            value(row.id),
            value(row.workspace_id),
            value(row.subject),
            number(row.role),
            count(row.resource_version),
            time(row.created_at),
        ],
    )
}

pub(crate) fn delete(workspace_id: Uuid, subject: String) -> Step {
    Step::new(DELETE, [value(workspace_id), value(subject)])
}

pub(crate) fn read(fields: &mut Fields<'_>) -> Result<Member, Malformed> {
    Ok(Member {
        id: fields.take()?,
        workspace_id: fields.take()?,
        subject: fields.take()?,
        role: fields.number()?,
        resource_version: fields.count()?,
        created_at: fields.time()?,
    })
}

pub(crate) fn read_role(rows: &[Row]) -> Result<Option<WorkspaceRole>, Malformed> {
    first(rows, |fields| fields.number())
}

pub(crate) fn read_all(rows: &[Row]) -> Result<Vec<Member>, Malformed> {
    all(rows, read)
}

pub(crate) fn read_count(rows: &[Row]) -> Result<u64, Malformed> {
    only(rows, |fields| fields.count())
}
