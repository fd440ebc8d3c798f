//! Deadlines that lie in rows, whatever they are about.

use std::time::SystemTime;

use crate::database::Database;
use crate::error::{FlightError, Stage, StoreError};
use crate::fields::only;
use crate::first_flight::OPEN;
use crate::flight::{Flight, Step};
use crate::in_flight::commit;
use crate::lease::BEGIN;
use crate::parameter::value;
use crate::row::OutboxRow;
use crate::table::provider;

const NEAREST: &str = "SELECT clock_timestamp(), least(
        (SELECT min(provisioning_deadline) FROM sandbox WHERE provisioning_deadline IS NOT NULL),
        (SELECT min(next_expiration) FROM provider WHERE next_expiration IS NOT NULL))";

/// What comes next, by Postgres's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nearest {
    pub now: SystemTime,
    /// The earliest deadline of all, which may have passed; none if there is none.
    pub deadline: Option<SystemTime>,
}

impl Database {
    /// The nearest deadline of any row, by one probe of each index.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn nearest_deadline(&self) -> Result<Nearest, StoreError> {
        let rows = self.rows(Step::plain(NEAREST)).await?;
        Ok(only(&rows, |fields| Ok(Nearest { now: fields.time()?, deadline: fields.take()? }))?)
    }

    /// Writes the marks of up to `most` providers of which a credential has expired, each once, and moves them on to
    /// their next expiration. Providers that others are at work on are left out.
    ///
    /// # Errors
    /// See [`FlightError`]; nothing was committed unless it is [`FlightError::Lost`].
    pub async fn expire_credentials(&self, most: u32) -> Result<Vec<OutboxRow>, FlightError> {
        let mut flight = Flight::default();
        flight.add(Step::plain(BEGIN));
        flight.add(Step::new(OPEN, [value(String::new())]));
        let mut lease = self.lease().await?;
        lease.begin(flight).await.map_err(|failed| FlightError::of(failed, Stage::First))?;
        let mut flight = Flight::default();
        flight.add(provider::expire(most));
        commit(lease, flight).await
    }
}
