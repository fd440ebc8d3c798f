//! Marks that committed transactions left behind, for the relay (D4).

use std::time::Duration;

use crate::database::Database;
use crate::error::StoreError;
use crate::fields::only;
use crate::flight::{Flight, Step};
use crate::lease::{BEGIN, COMMIT};
use crate::row::OutboxRow;
use crate::table::outbox;

/// A mark this old was left behind by the replica that wrote it; anyone publishes it.
pub const LEFT_BEHIND: Duration = Duration::from_millis(500);

impl Database {
    /// Marks older than [`LEFT_BEHIND`], oldest first, at most `most`.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn left_behind(&self, most: u32) -> Result<Vec<OutboxRow>, StoreError> {
        Ok(outbox::read_all(&self.rows(outbox::older(LEFT_BEHIND.as_secs_f64(), most)).await?)?)
    }

    /// Deletes marks that were published; how many there were. Those that are gone already are no error. A crash of
    /// Postgres may bring back those of the last moment, and they are published once more.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn delete_marks(&self, ids: Vec<i64>) -> Result<u64, StoreError> {
        let mut flight = Flight::default();
        flight.add(Step::plain(BEGIN));
        // A mark that comes back does no harm, so no mutation behind this one has to share its wait for the disk.
        flight.add(Step::plain("SET LOCAL synchronous_commit = off"));
        let deleted = flight.add(outbox::delete(ids));
        flight.add(Step::plain(COMMIT));
        let answers = self.lease().await?.commit(flight).await.map_err(StoreError::of)?;
        Ok(only(answers.rows(deleted), |fields| fields.count())?)
    }

    /// How many marks wait, for a metric.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn waiting_marks(&self) -> Result<u64, StoreError> {
        Ok(only(&self.rows(outbox::count()).await?, |fields| fields.count())?)
    }

    /// How long the oldest waiting mark has waited, for a metric; zero if none waits.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn oldest_mark(&self) -> Result<Duration, StoreError> {
        let seconds: f64 = only(&self.rows(outbox::oldest()).await?, |fields| fields.take())?;
        Ok(Duration::try_from_secs_f64(seconds).unwrap_or_default())
    }
}
