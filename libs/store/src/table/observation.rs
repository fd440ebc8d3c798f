//! What a sandbox's newest session observes of itself. Whoever holds the sandbox's lock holds its observation's.

use crate::fields::{Fields, Malformed};
use crate::flight::Step;
use crate::parameter::{count, time, value};
use crate::row::Observation;

macro_rules! columns {
    () => {
        "o.sandbox_id, o.session_id, o.readiness_announced, o.readiness_number, o.readiness, o.readiness_at, \
         o.endpoint_sequence"
    };
}
pub(crate) use columns;

/// How many there are.
pub(crate) const COLUMNS: usize = 7;

const PUT: &str = "INSERT INTO observation (sandbox_id, session_id, readiness_announced, readiness_number, readiness,
        readiness_at, endpoint_sequence)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (sandbox_id) DO UPDATE SET session_id = excluded.session_id,
        readiness_announced = excluded.readiness_announced, readiness_number = excluded.readiness_number,
        readiness = excluded.readiness, readiness_at = excluded.readiness_at,
        endpoint_sequence = excluded.endpoint_sequence";

pub(crate) fn put(row: Observation) -> Step {
    Step::new(
        PUT,
        [
            value(row.sandbox_id),
            value(row.session_id),
            value(row.readiness_announced),
            count(row.readiness_number),
            value(row.readiness.as_ref().map(prost::Message::encode_to_vec)),
            time(row.readiness_at),
            count(row.endpoint_sequence),
        ],
    )
}

pub(crate) fn read(fields: &mut Fields<'_>) -> Result<Observation, Malformed> {
    Ok(Observation {
        sandbox_id: fields.take()?,
        session_id: fields.take()?,
        readiness_announced: fields.take()?,
        readiness_number: fields.count()?,
        readiness: fields.optional_message()?,
        readiness_at: fields.time()?,
        endpoint_sequence: fields.count()?,
    })
}
