//! How many claims each caller holds. Counted last, so that a busy caller's count is held briefly, and in several slots,
//! so that its commands wait for each other only near the end of its quota.

use crate::flight::Step;
use crate::parameter::value;

const ADD: &str = "SELECT roadstead.count_claim($1, $2)";

const TAKE: &str = "SELECT roadstead.uncount_claims($1, $2)";

/// As many rows as callers and their slots, not as claims.
const TOTAL: &str = "SELECT coalesce(sum(used), 0)::bigint FROM quota_slot";

const READ: &str = "SELECT coalesce(sum(used), 0)::bigint FROM quota_slot WHERE caller = $1";

/// One claim more; raises if that is more than `most`.
pub(crate) fn add(caller: &[u8], most: u32) -> Step {
    Step::new(ADD, [value(caller.to_vec()), value(i64::from(most))])
}

/// `claims` fewer.
pub(crate) fn take(caller: &[u8], claims: u32) -> Step {
    Step::new(TAKE, [value(caller.to_vec()), value(i64::from(claims))])
}

pub(crate) fn total() -> Step {
    Step::plain(TOTAL)
}

pub(crate) fn read(caller: &[u8]) -> Step {
    Step::new(READ, [value(caller.to_vec())])
}
