//! What operators look at and do. Each act is one transaction, and its audit row is part of it.

use std::time::SystemTime;

use bytes::Bytes;
use uuid::Uuid;

use crate::database::Database;
use crate::error::{Fault, FlightError, Stage, StoreError};
use crate::fields::{all, first, only};
use crate::first_flight::{OPEN, WAIT_FOR_ROWS};
use crate::flight::{Answers, Flight, Step};
use crate::in_flight::commit;
use crate::lease::{BEGIN, Lease};
use crate::mutation::{Lock, Outcome, Write};
use crate::parameter::value;
use crate::row::{OutboxRow, Workspace};
use crate::table::{claim, command, effect, operator_act, quota, workspace};
use crate::write;

/// Who acts, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    pub operator: String,
    pub reason: String,
}

/// An act as it was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActRow {
    pub at: SystemTime,
    pub operator: String,
    pub act: String,
    pub reason: String,
}

/// A command that was started and has no outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Unresolved {
    pub command_id: Uuid,
    pub method: String,
    pub caller: Vec<u8>,
    /// Scope of its claim; empty without one.
    pub scope: String,
    pub claimed: bool,
    /// Of its claim; an older program did not note it.
    pub request_id: Option<Uuid>,
    pub since: SystemTime,
    /// When its executor has given up at the latest.
    pub until: SystemTime,
}

/// A command as the ledger keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandRow {
    pub method: String,
    pub caller: Vec<u8>,
    pub admitted_at: SystemTime,
    pub deadline: SystemTime,
    pub settled_at: Option<SystemTime>,
    pub outcome: Outcome,
}

/// All that is known of one command.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// None once it is forgotten.
    pub command: Option<CommandRow>,
    pub unresolved: Option<Unresolved>,
    /// Oldest first.
    pub acts: Vec<ActRow>,
}

/// What an operator found out about an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It happened: the claim completes without a receipt.
    Happened,
    /// It did not, and will not: the claim is deleted.
    DidNotHappen,
}

/// A command that an operator wants to settle.
#[derive(Debug)]
pub enum Standing {
    Absent,
    Settled,
    Started(Box<Held<Unresolved>>),
}

/// A row under its lock, in a transaction that ends with an operator's act or with none.
#[derive(Debug)]
pub struct Held<T> {
    lease: Lease,
    /// Postgres's clock.
    pub now: SystemTime,
    pub row: T,
}

impl<T> Held<T> {
    /// Ends the transaction without effect.
    pub async fn abandon(self) {
        self.lease.roll_back().await;
    }
}

impl Database {
    /// Commands that were started and have no outcome, oldest first, behind that start and id.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn unresolved(&self, after: (SystemTime, Uuid), most: u32) -> Result<Vec<Unresolved>, StoreError> {
        Ok(all(&self.rows(effect::list(after, most)).await?, effect::read)?)
    }

    /// All that is known of a command, in one flight.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn command_record(&self, id: Uuid) -> Result<Record, StoreError> {
        let mut flight = Flight::default();
        let row = flight.add(command::show(id));
        let unresolved = flight.add(effect::by_id(id));
        let acts = flight.add(operator_act::of(id));
        let answers = self.lease().await?.read(flight).await.map_err(StoreError::of)?;
        Ok(Record {
            command: first(answers.rows(row), command::read_shown)?,
            unresolved: first(answers.rows(unresolved), effect::read)?,
            acts: all(answers.rows(acts), operator_act::read)?,
        })
    }

    /// Locks a command, to be settled if it stands as started.
    ///
    /// # Errors
    /// See [`FlightError`]; nothing was committed.
    pub async fn hold_command(&self, id: Uuid) -> Result<Standing, FlightError> {
        let (lease, now, [known, unresolved], answers) = self.hold([command::lock(id), effect::by_id(id)]).await?;
        let standing = match command::known(answers.rows(known))? {
            command::Known::Absent => Standing::Absent,
            command::Known::Settled(Outcome::Started) => match first(answers.rows(unresolved), effect::read)? {
                Some(row) => return Ok(Standing::Started(Box::new(Held { lease, now, row }))),
                None => return Err(Fault("a started command is not among the effects").into()),
            },
            command::Known::Settled(_) | command::Known::Open => Standing::Settled,
        };
        lease.roll_back().await;
        Ok(standing)
    }

    /// Locks a workspace, if it is there.
    ///
    /// # Errors
    /// See [`FlightError`]; nothing was committed.
    pub async fn hold_workspace(&self, name: &str) -> Result<Option<Held<Workspace>>, FlightError> {
        let (lease, now, [found], answers) = self.hold([workspace::lock(name, Lock::Update)]).await?;
        let Some(row) = first(answers.rows(found), workspace::read)? else {
            lease.roll_back().await;
            return Ok(None);
        };
        Ok(Some(Held { lease, now, row }))
    }

    async fn hold<const N: usize>(
        &self,
        steps: [Step; N],
    ) -> Result<(Lease, SystemTime, [crate::flight::Slot; N], Answers), FlightError> {
        let mut flight = Flight::default();
        flight.add(Step::plain(BEGIN));
        let opened = flight.add(Step::new(OPEN, [value(String::new())]));
        flight.add(Step::plain(WAIT_FOR_ROWS));
        let slots = steps.map(|step| flight.add(step));
        let mut lease = self.lease().await?;
        let answers = lease.begin(flight).await.map_err(|failed| FlightError::of(failed, Stage::First))?;
        let now = only(answers.rows(opened), |fields| fields.time())?;
        Ok((lease, now, slots, answers))
    }
}

impl Held<Unresolved> {
    /// Gives the command its outcome, which is told to whoever still asks for it: an encoded google.rpc.Status.
    ///
    /// # Errors
    /// See [`FlightError`]; nothing was committed unless it is [`FlightError::Lost`].
    pub async fn settle(self, finding: Finding, told: Bytes, act: Act) -> Result<(), FlightError> {
        let Self { lease, row, .. } = self;
        let mut flight = Flight::default();
        flight.add(command::finish(row.command_id, &Outcome::Refused(told)));
        if let Some(request_id) = row.request_id {
            flight.add(claim::settle(&row, request_id, finding));
        }
        flight.add(effect::end(row.command_id));
        let what = match finding {
            Finding::Happened => "settled as succeeded",
            Finding::DidNotHappen => "settled as failed",
        };
        flight.add(operator_act::insert(act, what, row.command_id));
        if row.request_id.is_some() && finding == Finding::DidNotHappen {
            flight.add(quota::take(&row.caller, 1));
        }
        commit(lease, flight).await.map(drop)
    }
}

impl Held<Workspace> {
    /// Ends the workspace's deletion: its row as it is now, and its marks.
    ///
    /// # Errors
    /// See [`FlightError`]; nothing was committed unless it is [`FlightError::Lost`].
    pub async fn reactivate(self, act: Act) -> Result<(Workspace, Vec<OutboxRow>), FlightError> {
        let Self { lease, row, .. } = self;
        let active = Workspace { terminating_since: None, resource_version: row.resource_version + 1, ..row };
        let mut flight = Flight::default();
        write::add_all(&mut flight, vec![Write::UpdateWorkspace(active.clone())]);
        flight.add(operator_act::insert(act, "reactivated", active.id));
        let marks = commit(lease, flight).await?;
        Ok((active, marks))
    }
}
