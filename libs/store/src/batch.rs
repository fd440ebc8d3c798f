//! Sandboxes that were locked together, to be changed in one short transaction without a command.

use std::collections::BTreeSet;
use std::time::SystemTime;

use uuid::Uuid;

use crate::database::Database;
use crate::error::{FlightError, Stage};
use crate::fields::{all, only};
use crate::first_flight::OPEN;
use crate::flight::{Flight, Step};
use crate::in_flight::commit;
use crate::lease::{BEGIN, Lease};
use crate::mutation::Write;
use crate::parameter::value;
use crate::row::{OutboxRow, Sandbox};
use crate::table::{attachment, process, sandbox};
use crate::write;

/// Locked sandboxes, by id, to be concluded soon. Others at work on one of them are not waited for: it is left out.
#[derive(Debug)]
pub struct Batch {
    lease: Lease,
    /// Postgres's clock, cut to milliseconds.
    pub now: SystemTime,
    pub sandboxes: Vec<Sandbox>,
    /// Who judged which bridges gone; repeated in front of the COMMIT.
    judgement: Option<(Uuid, Vec<Uuid>)>,
}

impl Database {
    /// Locks up to `most` sandboxes whose session's bridge is gone, as this process may judge it (D6). None: there are
    /// none, or this process may not judge now.
    ///
    /// # Errors
    /// See [`FlightError`]; nothing is locked then.
    pub async fn lost_sessions(&self, most: u32) -> Result<Option<Batch>, FlightError> {
        let judge = self.process_id();
        let Some(batch) = self.locked(sandbox::lost(judge, most)).await? else { return Ok(None) };
        let sessions = batch.sandboxes.iter().filter_map(|known| known.session.as_ref());
        let gone: BTreeSet<Uuid> = sessions.map(|session| session.bridge_id).collect();
        Ok(Some(Batch { judgement: Some((judge, gone.into_iter().collect())), ..batch }))
    }

    /// Locks up to `most` sandboxes whose deadline has come, if there are any; those first that wait longest, and none of
    /// those that are left out.
    ///
    /// # Errors
    /// See [`FlightError`]; nothing is locked then.
    pub async fn past_deadline(&self, most: u32, left_out: &[Uuid]) -> Result<Option<Batch>, FlightError> {
        self.locked(sandbox::past_deadline(most, left_out)).await
    }

    /// Locks those of these sandboxes that nobody else is at work on and of which nothing is open but what their row says: no
    /// operation behind a receipt, no revision of a policy, and the bridge of their session is not gone. Others are left
    /// out. Attached providers are not read. What is written is published as part of that trace, if it is not empty.
    ///
    /// # Errors
    /// See [`FlightError`]; nothing is locked then.
    pub async fn nothing_open(&self, ids: &[Uuid], traceparent: &str) -> Result<Batch, FlightError> {
        let mut flight = Flight::default();
        flight.add(Step::plain(BEGIN));
        let opened = flight.add(Step::new(OPEN, [value(traceparent.to_owned())]));
        let locked = flight.add(sandbox::lock_free(ids.to_vec()));
        // A statement of its own, so that it sees what was committed before the locks were granted.
        let simple = flight.add(sandbox::nothing_open(ids.to_vec(), self.process_id()));
        let mut lease = self.lease().await?;
        let answers = lease.begin(flight).await.map_err(|failed| FlightError::of(failed, Stage::First))?;
        let now = only(answers.rows(opened), |fields| fields.time())?;
        let simple: BTreeSet<Uuid> = all(answers.rows(simple), |fields| fields.take())?.into_iter().collect();
        let mut sandboxes = sandbox::read_all(answers.rows(locked))?;
        sandboxes.retain(|known| simple.contains(&known.id));
        Ok(Batch { lease, now, sandboxes, judgement: None })
    }

    async fn locked(&self, lock: Step) -> Result<Option<Batch>, FlightError> {
        let mut flight = Flight::default();
        flight.add(Step::plain(BEGIN));
        let opened = flight.add(Step::new(OPEN, [value(String::new())]));
        let locked = flight.add(lock);
        let mut lease = self.lease().await?;
        let first = |failed| FlightError::of(failed, Stage::First);
        let answers = lease.begin(flight).await.map_err(first)?;
        let now = only(answers.rows(opened), |fields| fields.time())?;
        let mut sandboxes = sandbox::read_all(answers.rows(locked))?;
        if sandboxes.is_empty() {
            lease.roll_back().await;
            return Ok(None);
        }
        let mut flight = Flight::default();
        let names = flight.add(attachment::names_of(sandboxes.iter().map(|known| known.id).collect()));
        let answers = lease.go_on(flight).await.map_err(first)?;
        let mut names = attachment::names(answers.rows(names))?;
        for sandbox in &mut sandboxes {
            sandbox.providers = names.remove(&sandbox.id).unwrap_or_default();
        }
        Ok(Some(Batch { lease, now, sandboxes, judgement: None }))
    }
}

impl Batch {
    /// Writes and ends the transaction; the marks it left are to be published. For lost sessions the whole judgement is
    /// repeated in front of the COMMIT, and the bridges' next renewals tell them of it.
    ///
    /// # Errors
    /// [`FlightError::Guard`] if the judgement does not hold any more. Nothing was committed, unless it is
    /// [`FlightError::Lost`]: a sweep comes again and finds out.
    pub async fn conclude(self, writes: Vec<Write>) -> Result<Vec<OutboxRow>, FlightError> {
        let Self { lease, judgement, .. } = self;
        let mut flight = Flight::default();
        if let Some((judge, gone)) = judgement {
            flight.add(process::still_gone(gone.clone(), judge));
            flight.add(process::judge(gone));
        }
        write::add_all(&mut flight, writes);
        commit(lease, flight).await
    }
}
