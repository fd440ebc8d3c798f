//! How many claims each caller holds. Locked last, so that the one row of a busy caller is held briefly.

use crate::flight::Step;
use crate::parameter::value;

const ADD: &str = "INSERT INTO quota AS q (caller, used) VALUES ($1, roadstead.within_quota(1, $2))
    ON CONFLICT (caller) DO UPDATE SET used = roadstead.within_quota(q.used + 1, $2)";

const TAKE: &str = "UPDATE quota SET used = greatest(used - $2, 0) WHERE caller = $1";

/// The count of a caller for whom none are left is not kept.
const FORGET: &str = "DELETE FROM quota WHERE caller = $1 AND used = 0";

/// As many rows as callers, not as claims.
const TOTAL: &str = "SELECT coalesce(sum(used), 0)::bigint FROM quota";

const READ: &str = "SELECT used FROM quota WHERE caller = $1";

/// One claim more; raises if that is more than `most`.
pub(crate) fn add(caller: &[u8], most: u32) -> Step {
    Step::new(ADD, [value(caller.to_vec()), value(i64::from(most))])
}

/// `claims` fewer.
pub(crate) fn take(caller: &[u8], claims: u32) -> Step {
    Step::new(TAKE, [value(caller.to_vec()), value(i64::from(claims))])
}

pub(crate) fn forget(caller: &[u8]) -> Step {
    Step::new(FORGET, [value(caller.to_vec())])
}

pub(crate) fn total() -> Step {
    Step::plain(TOTAL)
}

pub(crate) fn read(caller: &[u8]) -> Step {
    Step::new(READ, [value(caller.to_vec())])
}
