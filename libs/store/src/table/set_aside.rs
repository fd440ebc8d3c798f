//! Deliveries that no attempt could handle, for an operator to look at. Payloads are sealed as they came.

use crate::flight::Step;
use crate::parameter::value;

const INSERT: &str = "INSERT INTO set_aside (subject, reason, payload) VALUES ($1, left($2, 1024), $3)";
const COUNT: &str = "SELECT count(*) FROM set_aside";
const DELETE_OLD: &str = "WITH old AS (
        SELECT id FROM set_aside WHERE created_at < clock_timestamp() - $1::float8 * interval '1 second'
        ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED
    ), gone AS (DELETE FROM set_aside s USING old WHERE s.id = old.id RETURNING 1)
    SELECT count(*) FROM gone";

pub(crate) fn insert(subject: &str, reason: &str, payload: &[u8]) -> Step {
    Step::new(INSERT, [value(subject.to_owned()), value(reason.to_owned()), value(payload.to_vec())])
}

pub(crate) fn count() -> Step {
    Step::plain(COUNT)
}

pub(crate) fn delete_old(seconds: f64, most: u32) -> Step {
    Step::new(DELETE_OLD, [value(seconds), value(i64::from(most))])
}
