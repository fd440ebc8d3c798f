//! Effects that left Postgres and have no outcome yet.

use uuid::Uuid;

use crate::flight::Step;
use crate::mutation::Command;
use crate::parameter::value;

const BEGIN: &str = "INSERT INTO effect (command_id, method, claimed) VALUES ($1, $2, $3)";
const END: &str = "WITH hit AS (DELETE FROM effect WHERE command_id = $1 RETURNING 1)
    SELECT roadstead.must_hit(count(*), 'effect') FROM hit";
const LIST: &str = "SELECT command_id, method, since FROM effect ORDER BY since LIMIT $1";
const COUNT_CLAIMED: &str = "SELECT count(*) FROM effect WHERE claimed";

pub(crate) fn begin(command: &Command) -> Step {
    Step::new(BEGIN, [value(command.id), value(command.method), value(command.claim.is_some())])
}

pub(crate) fn end(command_id: Uuid) -> Step {
    Step::new(END, [value(command_id)])
}

/// Oldest first.
pub(crate) fn list(most: u32) -> Step {
    Step::new(LIST, [value(i64::from(most))])
}

/// How many hold a claim.
pub(crate) fn count_claimed() -> Step {
    Step::plain(COUNT_CLAIMED)
}
