//! A connection out of the pool. It goes back only with no transaction open.

use std::fmt;

use deadpool_postgres::{ClientWrapper, Object};

use crate::flight::{Answers, Failed, Flight, Step};

pub(crate) const BEGIN: &str = "BEGIN";
pub(crate) const COMMIT: &str = "COMMIT";
const ROLLBACK: &str = "ROLLBACK";

/// A borrowed connection. Dropped with a transaction open, with one that may be, or with an answer outstanding, it is
/// closed, which ends the transaction; a caller that is cancelled in the middle of a flight leaves nothing behind.
pub(crate) struct Lease {
    /// Always there, until dropped.
    object: Option<Object>,
    /// Whether something is open or outstanding on it, so that nobody else may have it.
    engaged: bool,
}

impl Lease {
    pub(crate) fn new(object: Object) -> Self {
        Self { object: Some(object), engaged: false }
    }

    /// Flies; the flight begins a transaction and leaves it open.
    pub(crate) async fn begin(&mut self, flight: Flight) -> Result<Answers, Failed> {
        self.engaged = true;
        let result = flight.fly(self.client()?).await;
        self.roll_back_failed(result).await
    }

    /// Flies inside the open transaction.
    pub(crate) async fn go_on(&mut self, flight: Flight) -> Result<Answers, Failed> {
        let result = flight.fly(self.client()?).await;
        self.roll_back_failed(result).await
    }

    /// Flies; the flight ends in COMMIT. The driver does not show that the answer to it was COMMIT and not ROLLBACK,
    /// but every statement was examined, and one in an aborted transaction fails: if the last before COMMIT succeeded,
    /// there was nothing to roll back.
    pub(crate) async fn commit(mut self, flight: Flight) -> Result<Answers, Failed> {
        self.engaged = true;
        let result = flight.fly(self.client()?).await;
        if matches!(result, Ok(_) | Err(Failed::Statement { .. })) {
            // Either way its COMMIT was answered.
            self.engaged = false;
        }
        result
    }

    /// Ends the open transaction without effect.
    pub(crate) async fn roll_back(mut self) {
        self.try_roll_back().await;
    }

    /// From now on the connection is closed when this is dropped: its session holds what must not outlive this.
    pub(crate) fn keep_from_pool(&mut self) {
        self.engaged = true;
    }

    /// One flight of statements that need no transaction, the last of this lease.
    pub(crate) async fn read(mut self, flight: Flight) -> Result<Answers, Failed> {
        self.engaged = true;
        let result = flight.fly(self.client()?).await;
        self.engaged = matches!(result, Err(Failed::Broken(_)));
        result
    }

    /// One flight of statements that need no transaction, on a connection that is kept from the pool.
    pub(crate) async fn ask(&self, flight: Flight) -> Result<Answers, Failed> {
        flight.fly(self.client()?).await
    }

    async fn roll_back_failed(&mut self, result: Result<Answers, Failed>) -> Result<Answers, Failed> {
        if matches!(result, Err(Failed::Statement { .. })) {
            self.try_roll_back().await;
        }
        result
    }

    async fn try_roll_back(&mut self) {
        let mut flight = Flight::default();
        flight.add(Step::plain(ROLLBACK));
        let Ok(client) = self.client() else { return };
        match flight.fly(client).await {
            Ok(_) => self.engaged = false,
            Err(failed) => tracing::debug!(?failed, "a connection is closed instead of rolled back"),
        }
    }

    fn client(&self) -> Result<&ClientWrapper, Failed> {
        self.object.as_deref().ok_or(Failed::Broken(None))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.engaged
            && let Some(object) = self.object.take()
        {
            drop(Object::take(object));
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Lease").field("engaged", &self.engaged).finish_non_exhaustive()
    }
}
