//! A refusal committed alone: one raised by the second flight, or by the last bounded retry.

use bytes::Bytes;

use crate::database::Database;
use crate::error::{Busy, FlightError, LedgerRow, Stage, is_lock_timeout};
use crate::fields::only;
use crate::first_flight::OPEN;
use crate::flight::{Failed, Flight, Step};
use crate::lease::{BEGIN, COMMIT};
use crate::mutation::{Command, Outcome};
use crate::parameter::value;
use crate::table::command;

impl Database {
    /// Commits that the command was refused with `status` (an encoded `google.rpc.Status`), unless it has an outcome
    /// already. What is returned is the committed row, and the only thing to be told.
    ///
    /// # Errors
    /// [`FlightError::Busy`] if the same command is at work elsewhere; see [`FlightError`] for the rest.
    pub async fn record_refusal(&self, command: &Command, status: &Bytes) -> Result<Outcome, FlightError> {
        let mut flight = Flight::default();
        flight.add(Step::plain(BEGIN));
        let opened = flight.add(Step::new(OPEN, [value(command.traceparent.clone())]));
        flight.add(command::insert_refusal(command, status));
        let known = flight.add(command::read(command.id));
        flight.add(Step::plain(COMMIT));
        let answers = self.lease().await?.commit(flight).await.map_err(|failed| match failed {
            Failed::Statement { error, before, slot } if is_lock_timeout(&error) => {
                match only(before.rows(opened), |fields| fields.time()) {
                    Ok(now) => FlightError::Busy(Busy { on: LedgerRow::Command, now, role: None }),
                    Err(_) => FlightError::of(Failed::Statement { error, before, slot }, Stage::Second),
                }
            }
            failed => FlightError::of(failed, Stage::Second),
        })?;
        match command::known(answers.rows(known))? {
            command::Known::Settled(outcome) => Ok(outcome),
            command::Known::Open | command::Known::Absent => {
                Err(FlightError::Retry(crate::error::Fault("the ledger's row was just deleted").into()))
            }
        }
    }
}
