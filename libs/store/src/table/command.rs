//! The ledger of commands: at most one outcome for each id.

use bytes::Bytes;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::fields::{Fields, Malformed, first};
use crate::flight::Step;
use crate::mutation::{Command, Outcome};
use crate::operator::CommandRow;
use crate::parameter::{time, value};

const STARTED: i16 = 0;
const RESPONSE: i16 = 1;
const REFERENCE: i16 = 2;
const REFUSAL: i16 = 3;

const INSERT: &str =
    "INSERT INTO command (id, method, caller, deadline) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";

const INSERT_REFUSAL: &str = "INSERT INTO command (id, method, caller, deadline, outcome, body, settled_at)
    VALUES ($1, $2, $3, $4, 3, $5, clock_timestamp()) ON CONFLICT DO NOTHING";

const READ: &str = "SELECT outcome, replayed, body FROM command WHERE id = $1";

const SHOW: &str =
    "SELECT method, caller, created_at, deadline, settled_at, outcome, replayed, body FROM command WHERE id = $1";

const LOCK: &str = "SELECT outcome, replayed, body FROM command WHERE id = $1 FOR UPDATE";

const SETTLE: &str = "WITH hit AS (
        UPDATE command SET outcome = $2::smallint, replayed = $3, body = $4,
            settled_at = CASE WHEN $2::smallint = 0 THEN NULL ELSE clock_timestamp() END
        WHERE id = $1 AND outcome IS NULL RETURNING 1
    ) SELECT roadstead.must_hit(count(*), 'command') FROM hit";

const FINISH: &str = "WITH hit AS (
        UPDATE command SET outcome = $2::smallint, replayed = $3, body = $4, settled_at = clock_timestamp()
        WHERE id = $1 AND outcome = 0 RETURNING 1
    ) SELECT roadstead.must_hit(count(*), 'started command') FROM hit";

/// The age counts from the row's first moment, whose index entry no update touches.
const DELETE_OLD: &str = "WITH old AS (
        SELECT id FROM command
        WHERE created_at < clock_timestamp() - $1::float8 * interval '1 second' AND outcome <> 0
            AND settled_at < clock_timestamp() - $1::float8 * interval '1 second'
        ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED
    ), gone AS (DELETE FROM command c USING old WHERE c.id = old.id RETURNING 1)
    SELECT count(*) FROM gone";

pub(crate) fn insert(command: &Command) -> Step {
    Step::new(
        INSERT,
        [value(command.id), value(command.method), value(command.caller.to_vec()), time(command.deadline)],
    )
}

pub(crate) fn insert_refusal(command: &Command, status: &Bytes) -> Step {
    Step::new(
        INSERT_REFUSAL,
        [
            value(command.id),
            value(command.method),
            value(command.caller.to_vec()),
            time(command.deadline),
            value(status.to_vec()),
        ],
    )
}

pub(crate) fn read(id: Uuid) -> Step {
    Step::new(READ, [value(id)])
}

pub(crate) fn show(id: Uuid) -> Step {
    Step::new(SHOW, [value(id)])
}

pub(crate) fn read_shown(fields: &mut Fields<'_>) -> Result<CommandRow, Malformed> {
    Ok(CommandRow {
        method: fields.take()?,
        caller: fields.take()?,
        admitted_at: fields.time()?,
        deadline: fields.time()?,
        settled_at: fields.take()?,
        outcome: settled(fields.take()?, fields)?,
    })
}

pub(crate) fn lock(id: Uuid) -> Step {
    Step::new(LOCK, [value(id)])
}

/// Gives this transaction's own row its outcome.
pub(crate) fn settle(id: Uuid, outcome: &Outcome) -> Step {
    with_outcome(SETTLE, id, outcome)
}

/// Gives a started row its outcome.
pub(crate) fn finish(id: Uuid, outcome: &Outcome) -> Step {
    with_outcome(FINISH, id, outcome)
}

pub(crate) fn delete_old(seconds: f64, most: u32) -> Step {
    Step::new(DELETE_OLD, [value(seconds), value(i64::from(most))])
}

/// What a command row says.
#[derive(Debug)]
pub(crate) enum Known {
    /// The row is this transaction's own.
    Open,
    Settled(Outcome),
    /// It was there and is not any more.
    Absent,
}

pub(crate) fn known(rows: &[Row]) -> Result<Known, Malformed> {
    let known = first(rows, |fields| {
        let outcome = fields.take::<Option<i16>>()?;
        outcome.map_or(Ok(Known::Open), |outcome| settled(outcome, fields).map(Known::Settled))
    })?;
    Ok(known.unwrap_or(Known::Absent))
}

fn settled(outcome: i16, fields: &mut Fields<'_>) -> Result<Outcome, Malformed> {
    let (replayed, body) = (fields.take()?, fields.bytes()?);
    Ok(match outcome {
        STARTED => Outcome::Started,
        RESPONSE => Outcome::Response { body, replayed },
        REFERENCE => Outcome::Reference(body),
        REFUSAL => Outcome::Refused(body),
        other => return Err(Malformed(format!("outcome {other}"))),
    })
}

fn with_outcome(sql: &'static str, id: Uuid, outcome: &Outcome) -> Step {
    let (number, replayed, body) = match outcome {
        Outcome::Started => (STARTED, false, Bytes::new()),
        Outcome::Response { body, replayed } => (RESPONSE, *replayed, body.clone()),
        Outcome::Reference(receipt) => (REFERENCE, false, receipt.clone()),
        Outcome::Refused(status) => (REFUSAL, false, status.clone()),
    };
    Step::new(sql, [value(id), value(number), value(replayed), value(body.to_vec())])
}
