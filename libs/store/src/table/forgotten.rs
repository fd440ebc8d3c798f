//! Sandboxes that are gone and whose policies are still there.

use crate::flight::Step;
use crate::parameter::value;

/// A scope goes once nothing of it was left when the statement began, so the last of its policies take two of them.
const DELETE: &str = "WITH gone_scope AS (
        SELECT scope FROM forgotten ORDER BY since LIMIT $1 FOR UPDATE SKIP LOCKED
    ), old AS (
        SELECT r.scope, r.version FROM gone_scope JOIN policy_revision r USING (scope) LIMIT $1
    ), gone AS (
        DELETE FROM policy_revision r USING old WHERE (r.scope, r.version) = (old.scope, old.version) RETURNING 1
    ), done AS (
        DELETE FROM forgotten f USING gone_scope s
        WHERE f.scope = s.scope AND NOT EXISTS (SELECT FROM policy_revision r WHERE r.scope = s.scope) RETURNING 1
    ) SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM done)";

/// Removes policies of sandboxes that are gone, and notes of those of which none are left.
pub(crate) fn delete(most: u32) -> Step {
    Step::new(DELETE, [value(i64::from(most))])
}
