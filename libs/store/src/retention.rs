//! What is kept for how long. Every sweep is a batch that skips what others hold; whoever calls repeats it while it
//! finds something. Nothing unresolved ever goes.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use crate::database::Database;
use crate::error::{FlightError, Stage, StoreError};
use crate::fields::{all, only};
use crate::flight::{Flight, Step};
use crate::in_flight::commit;
use crate::lease::BEGIN;
use crate::table::{claim, command, effect, forgotten, process, quota, set_aside};

/// How long a command's outcome is kept.
pub const COMMAND_KEPT: Duration = Duration::from_secs(15 * 60);
/// How long a success stays claimed, from its completion.
pub const CLAIM_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// How long the row of a process that is gone is kept.
pub const PROCESS_KEPT: Duration = Duration::from_secs(60 * 60);
/// How long a delivery that was set aside is kept.
pub const SET_ASIDE_KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

impl Database {
    /// Deletes commands settled longer ago than [`COMMAND_KEPT`]; how many there were.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn delete_old_commands(&self, most: u32) -> Result<u64, StoreError> {
        self.count(command::delete_old(COMMAND_KEPT.as_secs_f64(), most)).await
    }

    /// Deletes claims completed longer ago than [`CLAIM_KEPT`], with what the quota counts of them; how many there were.
    ///
    /// # Errors
    /// See [`FlightError`].
    pub async fn delete_old_claims(&self, most: u32) -> Result<u64, FlightError> {
        self.delete_claims(claim::delete_old(most)).await
    }

    /// As [`Database::delete_old_claims`], of one caller: once, before it is told that its quota is used up.
    ///
    /// # Errors
    /// See [`FlightError`].
    pub async fn delete_old_claims_of(&self, caller: &[u8; 32], most: u32) -> Result<u64, FlightError> {
        self.delete_claims(claim::delete_old_of(caller, most)).await
    }

    async fn delete_claims(&self, delete: Step) -> Result<u64, FlightError> {
        let mut flight = Flight::default();
        flight.add(Step::plain(BEGIN));
        let deleted = flight.add(delete);
        let mut lease = self.lease().await?;
        let answers = lease.begin(flight).await.map_err(|failed| FlightError::of(failed, Stage::First))?;
        let callers: Vec<Vec<u8>> = all(answers.rows(deleted), |fields| fields.take())?;
        if callers.is_empty() {
            lease.roll_back().await;
            return Ok(0);
        }
        let mut counts: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        let mut total = 0;
        for caller in callers {
            *counts.entry(caller).or_default() += 1;
            total += 1;
        }
        // In the order of callers, for another sweep may be about the same ones.
        let mut flight = Flight::default();
        for (caller, claims) in counts {
            flight.add(quota::take(&caller, claims));
        }
        commit(lease, flight).await?;
        Ok(total)
    }

    /// Deletes policies of sandboxes that are gone; how many rows there were.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn delete_forgotten(&self, most: u32) -> Result<u64, StoreError> {
        self.count(forgotten::delete(most)).await
    }

    /// Deletes rows of processes that have not renewed for [`PROCESS_KEPT`] and own no session; how many there were.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn delete_old_processes(&self, most: u32) -> Result<u64, StoreError> {
        self.count(process::delete_old(PROCESS_KEPT.as_secs_f64(), most)).await
    }

    /// Deletes deliveries set aside longer ago than [`SET_ASIDE_KEPT`]; how many there were.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn delete_old_set_aside(&self, most: u32) -> Result<u64, StoreError> {
        self.count(set_aside::delete_old(SET_ASIDE_KEPT.as_secs_f64(), most)).await
    }

    /// Keeps a delivery that no attempt could handle, sealed as it came.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn set_aside(&self, subject: &str, reason: &str, payload: &Bytes) -> Result<(), StoreError> {
        self.rows(set_aside::insert(subject, reason, payload)).await.map(drop)
    }

    /// How many deliveries are set aside.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn set_aside_count(&self) -> Result<u64, StoreError> {
        self.count(set_aside::count()).await
    }

    /// How many claims have no outcome.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn unresolved_claims(&self) -> Result<u64, StoreError> {
        self.count(effect::count_claimed()).await
    }

    /// How many commands have no outcome, with and without a claim.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn unresolved_count(&self) -> Result<u64, StoreError> {
        self.count(effect::count()).await
    }

    /// How many claims are held by all callers together, those without an outcome included.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn claims_held(&self) -> Result<u64, StoreError> {
        self.count(quota::total()).await
    }

    /// How many claims the quota counts for a caller.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn quota_used(&self, caller: &[u8; 32]) -> Result<u64, StoreError> {
        let rows = self.rows(quota::read(caller)).await?;
        Ok(crate::fields::first(&rows, |fields| fields.count())?.unwrap_or(0))
    }

    async fn count(&self, step: Step) -> Result<u64, StoreError> {
        Ok(only(&self.rows(step).await?, |fields| fields.count())?)
    }
}
