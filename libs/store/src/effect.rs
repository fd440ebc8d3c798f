//! Effects that left Postgres. Their commands stand as started until they have an outcome, whoever dies.

use uuid::Uuid;

use crate::database::Database;
use crate::error::StoreError;
use crate::fields::only;
use crate::table::effect;

impl Database {
    /// Whether `executor` has begun the effect of that command and it has no outcome yet. No is no proof: its commit may
    /// still be on its way.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn has_begun(&self, command_id: Uuid, executor: Uuid) -> Result<bool, StoreError> {
        Ok(only(&self.rows(effect::begun_by(command_id, executor)).await?, |fields| fields.take())?)
    }
}
