//! Effects that left Postgres and have no outcome yet.

use std::time::{Duration, SystemTime};

use uuid::Uuid;

use crate::fields::{Fields, Malformed};
use crate::flight::Step;
use crate::mutation::Command;
use crate::operator::Unresolved;
use crate::parameter::{time, value};

const BEGIN: &str = "INSERT INTO effect (command_id, method, caller, claimed, scope, request_id, executor, until)
    VALUES ($1, $2, $3, $4, $5, $6, $7, clock_timestamp() + $8::float8 * interval '1 second')";
const BEGUN_BY: &str = "SELECT EXISTS (SELECT FROM effect WHERE command_id = $1 AND executor = $2)";
const END: &str = "WITH hit AS (DELETE FROM effect WHERE command_id = $1 RETURNING 1)
    SELECT roadstead.must_hit(count(*), 'effect') FROM hit";
const LIST: &str = "SELECT command_id, method, caller, claimed, scope, request_id, since, until FROM effect
    WHERE (since, command_id) > ($1, $2) ORDER BY since, command_id LIMIT $3";
const BY_ID: &str = "SELECT command_id, method, caller, claimed, scope, request_id, since, until FROM effect
    WHERE command_id = $1";
const COUNT: &str = "SELECT count(*) FROM effect";
const COUNT_CLAIMED: &str = "SELECT count(*) FROM effect WHERE claimed";

pub(crate) fn begin(command: &Command, executor: Uuid, within: Duration) -> Step {
    let claim = command.claim.as_ref();
    Step::new(
        BEGIN,
        [
            value(command.id),
            value(command.method),
            value(command.caller.to_vec()),
            value(claim.is_some()),
            value(claim.map(|claim| claim.scope.clone()).unwrap_or_default()),
            value(claim.map(|claim| claim.request_id)),
            value(executor),
            value(within.as_secs_f64()),
        ],
    )
}

/// Whether that executor has begun it.
pub(crate) fn begun_by(command_id: Uuid, executor: Uuid) -> Step {
    Step::new(BEGUN_BY, [value(command_id), value(executor)])
}

pub(crate) fn end(command_id: Uuid) -> Step {
    Step::new(END, [value(command_id)])
}

/// Oldest first, behind that start and id.
pub(crate) fn list((since, command_id): (SystemTime, Uuid), most: u32) -> Step {
    Step::new(LIST, [time(since), value(command_id), value(i64::from(most))])
}

pub(crate) fn by_id(command_id: Uuid) -> Step {
    Step::new(BY_ID, [value(command_id)])
}

pub(crate) fn read(fields: &mut Fields<'_>) -> Result<Unresolved, Malformed> {
    Ok(Unresolved {
        command_id: fields.take()?,
        method: fields.take()?,
        caller: fields.take()?,
        claimed: fields.take()?,
        scope: fields.take()?,
        request_id: fields.take()?,
        since: fields.time()?,
        until: fields.time()?,
    })
}

pub(crate) fn count() -> Step {
    Step::plain(COUNT)
}

/// How many hold a claim.
pub(crate) fn count_claimed() -> Step {
    Step::plain(COUNT_CLAIMED)
}
