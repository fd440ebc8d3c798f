//! A transaction between its two flights, and the second one.

use std::time::Duration;

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
    /// The quota counts a claim with that key already: an expired one that it deleted, or that of the effect's start.
    pub(crate) counted: bool,
    /// It holds the row of a command that was started.
    pub(crate) resumed: bool,
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

    /// Flies the second flight and ends the transaction. A conclusion must fit the ledger: effects only on a fresh one
    /// and on a resumed one that stands as started, replays only of an earlier claim, nothing on a settled one.
    ///
    /// # Errors
    /// See [`FlightError`]; nothing was committed unless it is [`FlightError::Lost`].
    pub async fn conclude(self, conclusion: Conclusion) -> Result<Committed, FlightError> {
        let Self { lease, command, loaded, own, quota: most } = self;
        let fits = match (&loaded.ledger, &conclusion) {
            (Ledger::Fresh, Conclusion::Effect { outcome, .. }) => *outcome != Outcome::Started,
            (Ledger::Settled(Outcome::Started), Conclusion::Effect { outcome, .. }) => {
                own.resumed && *outcome != Outcome::Started
            }
            (Ledger::Settled(Outcome::Started), Conclusion::Refusal(_)) => own.resumed,
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
        let settle = if own.resumed { command::finish } else { command::settle };
        let (outcome, kept) = match conclusion {
            Conclusion::Effect { writes, outcome, receipt } => {
                write::add_all(&mut flight, writes);
                flight.add(settle(command.id, &outcome));
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
                flight.add(settle(command.id, &outcome));
                if let Some(claim) = claim {
                    flight.add(claim::free(&command, claim));
                }
                (outcome, false)
            }
            Conclusion::Replay(outcome) => {
                flight.add(settle(command.id, &outcome));
                (outcome, false)
            }
        };
        if own.resumed {
            flight.add(effect::end(command.id));
        }
        // Last, so that a busy caller's count is held for no longer than the commit takes.
        match (kept, own.counted) {
            (true, false) => _ = flight.add(quota::add(&command.caller, most)),
            (false, true) => _ = flight.add(quota::take(&command.caller, 1)),
            (true, true) | (false, false) => {}
        }
        Ok(Committed { outbox: commit(lease, flight).await?, outcome })
    }

    /// First step of an effect that leaves Postgres: commits the command as started, with its claim, which the quota
    /// counts from here on. From then on only what [`Database::resume`](crate::Database::resume) returns, or an operator,
    /// settles it. `executor` is who is about to have the effect, and gives up `within` that time.
    ///
    /// # Errors
    /// As for [`InFlight::conclude`]. After [`FlightError::Lost`],
    /// [`Database::has_begun`](crate::Database::has_begun) may tell whether it was committed.
    pub async fn begin_effect(self, executor: Uuid, within: Duration) -> Result<Committed, FlightError> {
        let Self { lease, command, loaded, own, quota: most } = self;
        if !matches!(loaded.ledger, Ledger::Fresh) {
            lease.roll_back().await;
            return Err(Fault("an effect begins on a ledger that is not fresh").into());
        }
        let mut flight = Flight::default();
        flight.add(command::settle(command.id, &Outcome::Started));
        flight.add(effect::begin(&command, executor, within));
        if own.claim && !own.counted {
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

/// Adds what ends every writing transaction, its own marks and COMMIT, and flies. An error never comes after the COMMIT:
/// marks that cannot be read are left to the relay's poll.
pub(crate) async fn commit(lease: Lease, mut flight: Flight) -> Result<Vec<row::OutboxRow>, FlightError> {
    let marks = flight.add(outbox::own());
    flight.add(Step::plain(COMMIT));
    let answers = lease.commit(flight).await.map_err(|failed| FlightError::of(failed, Stage::Second))?;
    Ok(outbox::read_all(answers.rows(marks)).unwrap_or_else(|error| {
        tracing::error!(%error, "the marks of a committed transaction cannot be read");
        Vec::new()
    }))
}
