//! Settings of the deployment.

use crate::database::Database;
use crate::error::StoreError;
use crate::row::Settings;
use crate::table::setting;

impl Database {
    /// The global settings and their revision.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn global_settings(&self) -> Result<Settings, StoreError> {
        Ok(setting::read(&self.rows(setting::global()).await?)?)
    }
}
