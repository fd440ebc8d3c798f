//! Histories of policies: one for each sandbox, one for the deployment (scope nil).

use roadstead_proto::api::v1::PolicyStatus;
use uuid::Uuid;

use crate::fields::{Fields, Malformed};
use crate::flight::Step;
use crate::parameter::{message, number, optional_time, pairs, scope, time, value};
use crate::row::PolicyRevision;

macro_rules! columns {
    () => {
        "r.scope, r.version, r.hash, r.policy, r.status, r.load_error, r.created_at, r.loaded_at, r.provenance"
    };
}
pub(crate) use columns;

/// How many there are.
pub(crate) const COLUMNS: usize = 9;

/// Newest revisions of a history that are kept, whatever became of them.
const KEPT: u32 = 100;

const LATEST_GLOBAL: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM policy_revision r WHERE r.scope = '00000000-0000-0000-0000-000000000000' ORDER BY r.version DESC LIMIT 1"
);

const INSERT: &str = "INSERT INTO policy_revision
        (scope, version, hash, policy, status, load_error, created_at, loaded_at, provenance)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";

/// Nobody asks for these any more: they are neither among the newest, nor loaded, nor what the sandbox says it runs.
/// A few at a time, so that a history that has grown long costs no write much.
const PRUNE: &str = "DELETE FROM policy_revision WHERE scope = $1 AND version IN (
        SELECT r.version FROM policy_revision r
        WHERE r.scope = $1 AND r.version <= $2 AND r.status <> 2
            AND NOT EXISTS (SELECT FROM sandbox s WHERE s.id = r.scope AND s.current_policy_version = r.version)
        ORDER BY r.version LIMIT 10)";

/// Only open revisions are looked at, by an index that has no others.
const SETTLE: &str = "WITH hit AS (
        UPDATE policy_revision SET status = $3::smallint, load_error = $4,
            loaded_at = CASE WHEN $3::smallint = 2 THEN coalesce(loaded_at, date_trunc('milliseconds', clock_timestamp()))
                ELSE loaded_at END
        WHERE scope = $1 AND version = $2 RETURNING 1
    ), superseded AS (
        UPDATE policy_revision SET status = 4
        WHERE scope = $1 AND version < $2 AND status IN (1, 2) AND (status = 1 OR $3::smallint = 2)
    ) SELECT roadstead.must_hit(count(*), 'policy revision') FROM hit";

/// Newest revision of the global policy.
pub(crate) fn latest_global() -> Step {
    Step::plain(LATEST_GLOBAL)
}

pub(crate) fn insert(row: PolicyRevision) -> Step {
    Step::new(
        INSERT,
        [
            scope(row.scope),
            value(i64::from(row.version)),
            value(row.hash),
            message(&row.policy),
            number(row.status),
            value(row.load_error),
            time(row.created_at),
            optional_time(row.loaded_at),
            pairs(row.provenance),
        ],
    )
}

/// Removes what is too old once `version` is the newest of its history; none if nothing can be.
pub(crate) fn prune(of: Option<Uuid>, version: u32) -> Option<Step> {
    let oldest = version.checked_sub(KEPT).filter(|oldest| *oldest > 0)?;
    Some(Step::new(PRUNE, [scope(of), value(i64::from(oldest))]))
}

pub(crate) fn settle(of: Option<Uuid>, version: u32, status: PolicyStatus, error: String) -> Step {
    Step::new(SETTLE, [scope(of), value(i64::from(version)), number(status), value(error)])
}

pub(crate) fn read(fields: &mut Fields<'_>) -> Result<PolicyRevision, Malformed> {
    let scope: Uuid = fields.take()?;
    Ok(PolicyRevision {
        scope: Some(scope).filter(|scope| !scope.is_nil()),
        version: fields.version()?,
        hash: fields.take()?,
        policy: fields.message()?,
        status: fields.number()?,
        load_error: fields.take()?,
        created_at: fields.time()?,
        loaded_at: fields.take()?,
        provenance: fields.pairs()?,
    })
}
