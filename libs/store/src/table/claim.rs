//! The ledger of request ids: at most one effect for each caller, method, scope and id.

use tokio_postgres::Row;
use uuid::Uuid;

use crate::fields::{Malformed, first};
use crate::flight::Step;
use crate::mutation::{CLAIM_FORMAT, Claim, ClaimRow, Command};
use crate::operator::{Finding, Unresolved};
use crate::parameter::{Parameter, value};
use crate::retention::CLAIM_KEPT;

/// A success that is kept long enough is treated as absent. An unresolved claim never is.
const DELETE_EXPIRED: &str = "DELETE FROM claim
    WHERE caller = $1 AND method = $2 AND scope = $3 AND request_id = $4
        AND completed_at < clock_timestamp() - $5::float8 * interval '1 second'
    RETURNING 1";

const INSERT: &str = "INSERT INTO claim
        (caller, method, scope, request_id, format, protected, key_id, fingerprint, command_id, workspace_id)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, (SELECT id FROM workspace WHERE name = $10))
    ON CONFLICT DO NOTHING RETURNING 1";

const READ: &str = "SELECT format, protected, key_id, fingerprint, workspace_id, completed_at, receipt, command_id
    FROM claim WHERE caller = $1 AND method = $2 AND scope = $3 AND request_id = $4";

const COMPLETE: &str = "WITH hit AS (
        UPDATE claim SET completed_at = clock_timestamp(), receipt = $6
        WHERE caller = $1 AND method = $2 AND scope = $3 AND request_id = $4 AND command_id = $5
            AND completed_at IS NULL
        RETURNING 1
    ) SELECT roadstead.must_hit(count(*), 'claim') FROM hit";

const FREE: &str = "WITH hit AS (
        DELETE FROM claim
        WHERE caller = $1 AND method = $2 AND scope = $3 AND request_id = $4 AND command_id = $5
            AND completed_at IS NULL
        RETURNING 1
    ) SELECT roadstead.must_hit(count(*), 'claim') FROM hit";

/// The age counts from the row's first moment, whose index entry no update touches. Locks come in the order of the
/// ledger, the counts last and by caller.
const DELETE_OLD: &str = "WITH old AS (
        SELECT caller, method, scope, request_id FROM claim
        WHERE created_at < clock_timestamp() - $1::float8 * interval '1 second'
            AND completed_at < clock_timestamp() - $1::float8 * interval '1 second'
        ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED
    )
    DELETE FROM claim c USING old
    WHERE (c.caller, c.method, c.scope, c.request_id) = (old.caller, old.method, old.scope, old.request_id)
    RETURNING c.caller";

/// Waits for whoever is deleting the same ones: there is room when this has ended, whoever has made it. All take them in
/// one order.
const DELETE_OLD_OF_CALLER: &str = "WITH old AS (
        SELECT caller, method, scope, request_id FROM claim
        WHERE caller = $3 AND completed_at < clock_timestamp() - $1::float8 * interval '1 second'
        ORDER BY method, scope, request_id LIMIT $2 FOR UPDATE
    )
    DELETE FROM claim c USING old
    WHERE (c.caller, c.method, c.scope, c.request_id) = (old.caller, old.method, old.scope, old.request_id)
    RETURNING c.caller";

/// Calls about a workspace itself are scoped by its name and bound to no incarnation: such an id must work before the
/// workspace is there and after it is gone.
const UNBOUND: [&str; 2] = ["CreateWorkspace", "DeleteWorkspace"];

pub(crate) fn delete_expired(command: &Command, claim: &Claim) -> Step {
    keyed(DELETE_EXPIRED, command, claim, [value(CLAIM_KEPT.as_secs_f64())])
}

/// `workspace` is the workspace of the call, if it has one.
pub(crate) fn insert(command: &Command, claim: &Claim, workspace: Option<&str>) -> Step {
    let bound = workspace.filter(|_| !UNBOUND.contains(&command.method)).map(str::to_owned);
    keyed(
        INSERT,
        command,
        claim,
        [
            value(CLAIM_FORMAT),
            value(claim.protected),
            value(claim.key_id.clone()),
            value(claim.fingerprint.to_vec()),
            value(command.id),
            value(bound),
        ],
    )
}

pub(crate) fn read(command: &Command, claim: &Claim) -> Step {
    keyed(READ, command, claim, [])
}

/// Completes the claim that this command made.
pub(crate) fn complete(command: &Command, claim: &Claim, receipt: &[u8]) -> Step {
    keyed(COMPLETE, command, claim, [value(command.id), value(receipt.to_vec())])
}

/// Deletes the claim that this command made.
pub(crate) fn free(command: &Command, claim: &Claim) -> Step {
    keyed(FREE, command, claim, [value(command.id)])
}

/// Completes an unresolved claim without a receipt, or deletes it, as an operator found.
pub(crate) fn settle(unresolved: &Unresolved, request_id: Uuid, finding: Finding) -> Step {
    let mut parameters = vec![
        value(unresolved.caller.clone()),
        value(unresolved.method.clone()),
        value(unresolved.scope.clone()),
        value(request_id),
        value(unresolved.command_id),
    ];
    match finding {
        Finding::Happened => {
            parameters.push(value(Vec::<u8>::new()));
            Step { sql: COMPLETE, parameters }
        }
        Finding::DidNotHappen => Step { sql: FREE, parameters },
    }
}

pub(crate) fn delete_old(most: u32) -> Step {
    Step::new(DELETE_OLD, [value(CLAIM_KEPT.as_secs_f64()), value(i64::from(most))])
}

pub(crate) fn delete_old_of(caller: &[u8; 32], most: u32) -> Step {
    Step::new(DELETE_OLD_OF_CALLER, [value(CLAIM_KEPT.as_secs_f64()), value(i64::from(most)), value(caller.to_vec())])
}

/// The row and the command that made it.
pub(crate) fn found(rows: &[Row]) -> Result<Option<(ClaimRow, Uuid)>, Malformed> {
    first(rows, |fields| {
        let row = ClaimRow {
            format: fields.take()?,
            protected: fields.take()?,
            key_id: fields.take()?,
            fingerprint: fields.take()?,
            workspace_id: fields.take()?,
            completed_at: fields.take()?,
            receipt: fields.bytes()?,
        };
        Ok((row, fields.take()?))
    })
}

fn keyed<const N: usize>(sql: &'static str, command: &Command, claim: &Claim, rest: [Parameter; N]) -> Step {
    let mut parameters = vec![
        value(command.caller.to_vec()),
        value(command.method),
        value(claim.scope.clone()),
        value(claim.request_id),
    ];
    parameters.extend(rest);
    Step { sql, parameters }
}
