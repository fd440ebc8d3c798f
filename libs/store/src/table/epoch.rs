//! The life of this database: raised when it was restored or failed over.

use crate::flight::Step;

pub(crate) const READ: &str = "SELECT value FROM epoch";
pub(crate) const RAISE: &str = "UPDATE epoch SET value = value + 1 RETURNING value";

pub(crate) fn read() -> Step {
    Step::plain(READ)
}
