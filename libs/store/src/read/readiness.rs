//! What is asked about the readiness of a sandbox's providers, beside its configuration.

use uuid::Uuid;

use crate::database::Database;
use crate::error::StoreError;
use crate::fields::first;
use crate::flight::Step;
use crate::parameter::value;
use crate::row::{Observation, ProviderReceipt};
use crate::table::{observation, provider_receipt};

/// One of a sandbox's receipts, and what its session observes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Readiness {
    /// None also if it is another sandbox's.
    pub receipt: Option<ProviderReceipt>,
    /// None: no session was ever registered.
    pub observation: Option<Observation>,
}

const READINESS: &str = concat!(
    "SELECT ",
    observation::columns!(),
    ", ",
    provider_receipt::columns!(),
    " FROM (VALUES (true)) one LEFT JOIN observation o ON o.sandbox_id = $1 \
     LEFT JOIN provider_receipt r ON r.id = $2 AND r.sandbox_id = $1"
);

impl Database {
    /// What the newest session of a sandbox observes, and one of its receipts.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn readiness(&self, sandbox_id: Uuid, receipt_id: Option<Uuid>) -> Result<Readiness, StoreError> {
        let rows = self.rows(Step::new(READINESS, [value(sandbox_id), value(receipt_id)])).await?;
        let found = first(&rows, |fields| {
            let observation = if fields.is_next_null::<Uuid>()? {
                fields.skip(observation::COLUMNS);
                None
            } else {
                Some(observation::read(fields)?)
            };
            let none = fields.is_next_null::<Uuid>()?;
            Ok(Readiness { receipt: if none { None } else { Some(provider_receipt::read(fields)?) }, observation })
        })?;
        Ok(found.unwrap_or_default())
    }
}
