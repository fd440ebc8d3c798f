//! Liveness of bridges and admissions, by Postgres's clock (D6).

use uuid::Uuid;

use crate::flight::Step;
use crate::parameter::value;

/// Whether the bridge that owns the session of sandbox `s` is gone, as the process `$judge` may judge it: the bridge's
/// row is older than 20 s or not there, and the judge's own row is fresh and has been for 20 s. The clock is read in
/// the statement, so one that waited out a freeze finds its own row stale and judges nobody.
macro_rules! owner_is_gone {
    ($judge:literal) => {
        concat!(
            "(s.session_bridge_id IS NOT NULL \
             AND NOT EXISTS (SELECT FROM process b WHERE b.id = s.session_bridge_id \
                 AND b.renewed_at > clock_timestamp() - interval '20 seconds') \
             AND EXISTS (SELECT FROM process j WHERE j.id = ",
            $judge,
            " AND j.renewed_at >= clock_timestamp() - interval '7 seconds' \
                 AND j.since < clock_timestamp() - interval '20 seconds'))"
        )
    };
}
pub(crate) use owner_is_gone;

/// A gap over 7 s restarts `since`. A process that was judged gone is told so from its first renewal on for 12 s: at
/// least two answers, since one may be lost.
const RENEW: &str = "INSERT INTO process AS p (id, kind) VALUES ($1, $2)
    ON CONFLICT (id) DO UPDATE SET
        since = CASE WHEN p.renewed_at < clock_timestamp() - interval '7 seconds' THEN clock_timestamp() ELSE p.since END,
        renewed_at = clock_timestamp(),
        told_at = CASE WHEN p.judged_at IS NULL THEN NULL ELSE coalesce(p.told_at, clock_timestamp()) END,
        judged_at = CASE WHEN p.told_at < clock_timestamp() - interval '12 seconds' THEN NULL ELSE p.judged_at END
    RETURNING judged_at IS NOT NULL, clock_timestamp()";

/// A session's bridge has a row from the session's first moment on.
const ENSURE_BRIDGE: &str = "INSERT INTO process (id, kind) VALUES ($1, 1) ON CONFLICT DO NOTHING";

const JUDGE: &str = "UPDATE process SET judged_at = clock_timestamp(), told_at = NULL WHERE id = ANY ($1)";

/// Raises unless every one of the bridges is gone, as the judge may judge it.
const STILL_GONE: &str = concat!(
    "SELECT roadstead.must_hit(count(*) FILTER (WHERE ",
    owner_is_gone!("$2"),
    ") / count(*), 'a bridge that is gone') FROM unnest($1::uuid[]) s (session_bridge_id)"
);

/// Rows that nothing refers to any more.
const DELETE_OLD: &str = "WITH old AS (
        SELECT id FROM process p
        WHERE renewed_at < clock_timestamp() - $1::float8 * interval '1 second'
            AND NOT EXISTS (SELECT FROM sandbox s WHERE s.session_bridge_id = p.id)
        ORDER BY renewed_at LIMIT $2 FOR UPDATE SKIP LOCKED
    ), gone AS (DELETE FROM process p USING old WHERE p.id = old.id RETURNING 1)
    SELECT count(*) FROM gone";

/// `kind` is 1 for a bridge and 2 for an admission.
pub(crate) fn renew(id: Uuid, kind: i16) -> Step {
    Step::new(RENEW, [value(id), value(kind)])
}

pub(crate) fn ensure_bridge(id: Uuid) -> Step {
    Step::new(ENSURE_BRIDGE, [value(id)])
}

pub(crate) fn still_gone(bridges: Vec<Uuid>, judge: Uuid) -> Step {
    Step::new(STILL_GONE, [value(bridges), value(judge)])
}

pub(crate) fn judge(bridges: Vec<Uuid>) -> Step {
    Step::new(JUDGE, [value(bridges)])
}

pub(crate) fn delete_old(seconds: f64, most: u32) -> Step {
    Step::new(DELETE_OLD, [value(seconds), value(i64::from(most))])
}
