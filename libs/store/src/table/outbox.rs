//! Marks that wait to be published.

use roadstead_proto::subject::{Changed, Kind};
use tokio_postgres::Row;

use crate::fields::{Malformed, all};
use crate::flight::Step;
use crate::parameter::value;
use crate::row::OutboxRow;

const OWN: &str = "SELECT id, kind, workspace_id, object_id, configuration, traceparent FROM outbox
    WHERE transaction_id = pg_current_xact_id_if_assigned()::text::bigint ORDER BY id";

const OLDER: &str = "SELECT id, kind, workspace_id, object_id, configuration, traceparent FROM outbox
    WHERE created_at < clock_timestamp() - $1::float8 * interval '1 second' ORDER BY id LIMIT $2";

const DELETE: &str = "WITH gone AS (DELETE FROM outbox WHERE id = ANY ($1) RETURNING 1) SELECT count(*) FROM gone";

const COUNT: &str = "SELECT count(*) FROM outbox";

/// The one that was written first, or nearly so: no backlog, however long, is looked through for it.
const OLDEST: &str = "SELECT coalesce((
        SELECT extract(epoch FROM clock_timestamp() - created_at) FROM outbox ORDER BY id LIMIT 1
    ), 0)::float8";

/// The marks of the open transaction.
pub(crate) fn own() -> Step {
    Step::plain(OWN)
}

pub(crate) fn older(seconds: f64, most: u32) -> Step {
    Step::new(OLDER, [value(seconds), value(i64::from(most))])
}

pub(crate) fn delete(ids: Vec<i64>) -> Step {
    Step::new(DELETE, [value(ids)])
}

pub(crate) fn count() -> Step {
    Step::plain(COUNT)
}

pub(crate) fn oldest() -> Step {
    Step::plain(OLDEST)
}

pub(crate) fn read_all(rows: &[Row]) -> Result<Vec<OutboxRow>, Malformed> {
    all(rows, |fields| {
        let id = fields.take()?;
        let kind: &str = fields.take()?;
        let kind = Kind::from_name(kind).ok_or_else(|| Malformed(format!("kind {kind} of a mark")))?;
        let mark = Changed { kind, workspace_id: fields.take()?, object_id: fields.take()? };
        Ok(OutboxRow { id, mark, configuration: fields.take()?, traceparent: fields.take()? })
    })
}
