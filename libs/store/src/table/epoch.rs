//! The life of this database: raised when it was restored or failed over.

use crate::flight::Step;

pub(crate) const READ: &str = "SELECT value FROM epoch";
/// At least the time in milliseconds: the row may be that of a backup that was restored, and raised, before.
pub(crate) const RAISE: &str = "UPDATE epoch
    SET value = greatest(value + 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
    FROM (SELECT value AS before FROM epoch FOR UPDATE) former
    RETURNING before, value";

pub(crate) fn read() -> Step {
    Step::plain(READ)
}
