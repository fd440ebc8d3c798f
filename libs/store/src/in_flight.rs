//! A transaction between its two flights, and the second one.

use uuid::Uuid;

use crate::error::{Fault, FlightError, Stage};
use crate::fields::{Malformed, first};
use crate::flight::{Flight, Step};
use crate::lease::{COMMIT, Lease};
use crate::mutation::{Command, Conclusion, Ledger, Loaded, Outcome};
use crate::row;
use crate::table::{claim, command, effect, member, outbox, provider, quota, sandbox, workspace};
use crate::write;

/// A transaction with all its locks held, to be concluded soon.
#[derive(Debug)]
pub struct InFlight {
    lease: Lease,
    command: Command,
    loaded: Loaded,
    own: Own,
    quota: u32,
}

/// What the transaction has done to the ledger so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Own {
    /// It inserted the command.
    pub(crate) command: bool,
    /// It inserted the claim.
    pub(crate) claim: bool,
    /// It deleted an expired claim with that key, which the quota still counts.
    pub(crate) expired: bool,
}

/// What a transaction committed.
#[derive(Clone, Debug, PartialEq)]
pub struct Committed {
    /// As the ledger keeps it.
    pub outcome: Outcome,
    /// The marks of this transaction, to be published and then deleted.
    pub outbox: Vec<row::OutboxRow>,
}

impl InFlight {
    pub(crate) fn new(lease: Lease, command: Command, loaded: Loaded, own: Own, quota: u32) -> Self {
        Self { lease, command, loaded, own, quota }
    }

    /// What the first flight found.
    #[must_use]
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// Flies the second flight and ends the transaction. A conclusion must fit the ledger: effects only on a fresh one,
    /// replays only of an earlier claim, nothing on a settled one.
    ///
    /// # Errors
    /// See [`FlightError`]; nothing was committed unless it is [`FlightError::Lost`].
    pub async fn conclude(self, conclusion: Conclusion) -> Result<Committed, FlightError> {
        let Self { lease, command, loaded, own, quota: most } = self;
        let fits = match (&loaded.ledger, &conclusion) {
            (Ledger::Fresh, Conclusion::Effect { outcome, .. }) => *outcome != Outcome::Started,
            (Ledger::Fresh | Ledger::Claimed(_), Conclusion::Refusal(_)) => true,
            (Ledger::Claimed(_), Conclusion::Replay(outcome)) => *outcome != Outcome::Started,
            _ => false,
        };
        if !fits {
            lease.roll_back().await;
            return Err(Fault("a conclusion does not fit the ledger").into());
        }
        let mut flight = Flight::default();
        let claim = command.claim.as_ref().filter(|_| own.claim);
        let (outcome, added) = match conclusion {
            Conclusion::Effect { writes, outcome, receipt } => {
                write::add_all(&mut flight, writes);
                flight.add(command::settle(command.id, &outcome));
                // A refusal that leaves something behind frees the request id like any other.
                let kept = claim.filter(|_| !matches!(outcome, Outcome::Refused(_)));
                if let Some(claim) = claim {
                    flight.add(match kept {
                        Some(claim) => claim::complete(&command, claim, &receipt),
                        None => claim::free(&command, claim),
                    });
                }
                (outcome, kept.is_some())
            }
            Conclusion::Refusal(status) => {
                let outcome = Outcome::Refused(status);
                flight.add(command::settle(command.id, &outcome));
                if let Some(claim) = claim {
                    flight.add(claim::free(&command, claim));
                }
                (outcome, false)
            }
            Conclusion::Replay(outcome) => {
                flight.add(command::settle(command.id, &outcome));
                (outcome, false)
            }
        };
        // Last, so that a busy caller's count is held for no longer than the commit takes.
        match (added, own.expired) {
            (true, false) => _ = flight.add(quota::add(&command.caller, most)),
            (false, true) => _ = flight.add(quota::take(&command.caller, 1)),
            // The new claim takes the place of the expired one.
            (true, true) | (false, false) => {}
        }
        Ok(Committed { outbox: commit(lease, flight).await?, outcome })
    }

    /// First step of an effect that leaves Postgres: commits the command as started, with its claim, which the quota
    /// counts from here on. From then on only [`crate::Database::finish_effect`] or an operator settles it.
    ///
    /// # Errors
    /// As for [`InFlight::conclude`].
    pub async fn begin_effect(self) -> Result<Committed, FlightError> {
        let Self { lease, command, loaded, own, quota: most } = self;
        if !matches!(loaded.ledger, Ledger::Fresh) {
            lease.roll_back().await;
            return Err(Fault("an effect begins on a ledger that is not fresh").into());
        }
        let mut flight = Flight::default();
        flight.add(command::settle(command.id, &Outcome::Started));
        flight.add(effect::begin(&command));
        if own.claim && !own.expired {
            flight.add(quota::add(&command.caller, most));
        }
        Ok(Committed { outbox: commit(lease, flight).await?, outcome: Outcome::Started })
    }

    /// Ends the transaction without effect.
    pub async fn abandon(self) {
        self.lease.roll_back().await;
    }

    /// The sandbox with that id, read inside the transaction: for a replay.
    ///
    /// # Errors
    /// See [`FlightError`]; the transaction is over then.
    pub async fn sandbox_by_id(&mut self, id: Uuid) -> Result<Option<row::Sandbox>, FlightError> {
        self.one(sandbox::by_id(id), sandbox::read_whole).await
    }

    /// The provider with that id, without the values of its credentials: for a replay.
    ///
    /// # Errors
    /// See [`FlightError`]; the transaction is over then.
    pub async fn provider_by_id(&mut self, id: Uuid) -> Result<Option<row::Provider>, FlightError> {
        self.one(provider::by_id(id), provider::read).await
    }

    /// The workspace with that id: for a replay.
    ///
    /// # Errors
    /// See [`FlightError`]; the transaction is over then.
    pub async fn workspace_by_id(&mut self, id: Uuid) -> Result<Option<row::Workspace>, FlightError> {
        self.one(workspace::by_id(id), workspace::read).await
    }

    /// The member with that id: for a replay.
    ///
    /// # Errors
    /// See [`FlightError`]; the transaction is over then.
    pub async fn member_by_id(&mut self, id: Uuid) -> Result<Option<row::Member>, FlightError> {
        self.one(member::by_id(id), member::read).await
    }

    async fn one<T>(
        &mut self,
        step: Step,
        read: impl FnOnce(&mut crate::fields::Fields<'_>) -> Result<T, Malformed>,
    ) -> Result<Option<T>, FlightError> {
        let mut flight = Flight::default();
        let slot = flight.add(step);
        let answers = self.lease.go_on(flight).await.map_err(|failed| FlightError::of(failed, Stage::First))?;
        Ok(first(answers.rows(slot), read)?)
    }
}

/// Adds what ends every writing transaction, its own marks and COMMIT, and flies.
pub(crate) async fn commit(lease: Lease, mut flight: Flight) -> Result<Vec<row::OutboxRow>, FlightError> {
    let marks = flight.add(outbox::own());
    flight.add(Step::plain(COMMIT));
    let answers = lease.commit(flight).await.map_err(|failed| FlightError::of(failed, Stage::Second))?;
    Ok(outbox::read_all(answers.rows(marks))?)
}
