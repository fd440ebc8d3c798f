//! Receipts of changes of providers. Whoever holds a sandbox's lock may write its receipts.

use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::fields::{Fields, Malformed};
use crate::flight::Step;
use crate::parameter::{Parameter, number, optional_time, value, within_range};
use crate::row::{Completion, ProviderReceipt};

macro_rules! columns {
    () => {
        "r.id, r.sandbox_id, r.mutation_id, r.kind, r.provider_id, r.provider_name, r.provider_version, \
         r.attachment_epoch, r.persisted_at, r.operation, r.outcome, r.error, r.settled_at"
    };
}
pub(crate) use columns;

/// Newest receipts of a sandbox that are kept.
const KEPT: i64 = 200;

/// Makes room first, a few at a time, so that no change pays for all those before it.
const INSERT: &str = "WITH old AS (
        DELETE FROM provider_receipt WHERE id IN (
            SELECT old.id FROM unnest($2::uuid[]) s (id) CROSS JOIN LATERAL (
                SELECT r.id FROM provider_receipt r WHERE r.sandbox_id = s.id ORDER BY r.ordinal DESC
                OFFSET $14::bigint - 1 LIMIT 10
            ) old)
    ) INSERT INTO provider_receipt (id, sandbox_id, mutation_id, kind, provider_id, provider_name, provider_version,
        attachment_epoch, persisted_at, operation, outcome, error, settled_at)
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::smallint[], $5::uuid[], $6::text[], $7::bigint[],
        $8::uuid[], $9::timestamptz[], $10::smallint[], $11::smallint[], $12::text[], $13::timestamptz[])";

/// What has ended stays as it is.
const SETTLE: &str = "UPDATE provider_receipt SET operation = $2, outcome = $3, error = $4, settled_at = $5
    WHERE sandbox_id = $1 AND operation = 1";

pub(crate) fn insert(rows: &[ProviderReceipt]) -> Step {
    fn each<T: ToSql + Sync + Send + 'static>(rows: &[ProviderReceipt], of: fn(&ProviderReceipt) -> T) -> Parameter {
        value(rows.iter().map(of).collect::<Vec<T>>())
    }
    Step::new(
        INSERT,
        [
            each(rows, |row| row.id),
            each(rows, |row| row.sandbox_id),
            each(rows, |row| row.mutation_id),
            each(rows, |row| small(row.kind)),
            each(rows, |row| row.provider_id),
            each(rows, |row| row.provider_name.clone()),
            each(rows, |row| row.provider_version.cast_signed()),
            each(rows, |row| row.attachment_epoch),
            each(rows, |row| within_range(row.persisted_at)),
            each(rows, |row| small(row.completion.state)),
            each(rows, |row| small(row.completion.outcome)),
            each(rows, |row| row.completion.error.clone()),
            each(rows, |row| row.completion.at.map(within_range)),
            value(KEPT),
        ],
    )
}

/// Ends what is pending of a sandbox.
pub(crate) fn settle(sandbox_id: Uuid, end: Completion) -> Step {
    let parameters =
        [value(sandbox_id), number(end.state), number(end.outcome), value(end.error), optional_time(end.at)];
    Step::new(SETTLE, parameters)
}

/// Values of the API's enums are small; anything else breaks a check of the table.
fn small(value: impl Into<i32>) -> i16 {
    i16::try_from(value.into()).unwrap_or(i16::MAX)
}

pub(crate) fn read(fields: &mut Fields<'_>) -> Result<ProviderReceipt, Malformed> {
    Ok(ProviderReceipt {
        id: fields.take()?,
        sandbox_id: fields.take()?,
        mutation_id: fields.take()?,
        kind: fields.number()?,
        provider_id: fields.take()?,
        provider_name: fields.take()?,
        provider_version: fields.count()?,
        attachment_epoch: fields.take()?,
        persisted_at: fields.time()?,
        completion: Completion {
            state: fields.number()?,
            outcome: fields.number()?,
            error: fields.take()?,
            at: fields.take()?,
        },
    })
}
