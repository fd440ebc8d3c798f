//! The second half of a command whose effect leaves Postgres: it stands as started, the effect is had, the outcome is
//! committed. Whatever goes wrong from here on, the row stays started: nobody executes it again.

use std::sync::Arc;
use std::time::Duration;

use roadstead_store::mutation::{Ledger, Locks, Outcome};
use roadstead_store::{FlightError, InFlight};
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use uuid::Uuid;

use super::{AWAY, End, Executor, Unpublished, conclude};
use crate::attempt::Attempt;
use crate::effect::{Effect, Ended};
use crate::metrics::Reason;
use crate::refusal::Refusal;

/// How long the outcome of an effect is tried to be committed.
const FINISHING: Duration = Duration::from_secs(30);
/// What clocks and connections may add before it is certain that an executor has given up.
const MARGIN: Duration = Duration::from_secs(10);
/// Pauses between tries; they double.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Looks for a begin whose commit was not answered.
const LOOKS: u32 = 5;

impl Executor {
    /// Commits the command as started and has its effect. An error says that it was not begun.
    pub(super) async fn two_steps(
        &self,
        attempt: &Attempt<'_>,
        in_flight: InFlight,
        effect: Arc<dyn Effect>,
    ) -> Result<End, FlightError> {
        let Ok(slot) = self.0.effect_slots.try_acquire() else {
            in_flight.abandon().await;
            return Ok(End::PutBack("effects_busy", AWAY));
        };
        // From before the row is there, so that its time is over when the row says so, however long the commit took.
        let until = Instant::now() + self.0.effect_time;
        let executor = Uuid::new_v4();
        match in_flight.begin_effect(executor, self.0.effect_time + FINISHING + MARGIN).await {
            Ok(begun) => self.0.marks.committed(begun.outbox),
            Err(FlightError::Lost(source)) if !self.has_begun(attempt, executor).await => {
                return Err(FlightError::Lost(source));
            }
            Err(FlightError::Lost(_)) => tracing::debug!("the commit of a started effect was found"),
            Err(error) => return Err(error),
        }
        self.0.metrics.effects_started.inc();
        Ok(self.perform(attempt, effect.as_ref(), until, slot).await)
    }

    /// Whether this executor's begin was committed, though the answer was lost. What is not found stays as it is.
    async fn has_begun(&self, attempt: &Attempt<'_>, executor: Uuid) -> bool {
        let mut pause = FIRST_PAUSE;
        for _ in 0..LOOKS {
            match self.0.database.has_begun(attempt.command.id, executor).await {
                Ok(true) => return true,
                Ok(false) => {}
                Err(error) => tracing::debug!(%error, "cannot look whether an effect was begun"),
            }
            sleep(pause).await;
            pause *= 2;
        }
        false
    }

    async fn perform(
        &self,
        attempt: &Attempt<'_>,
        effect: &dyn Effect,
        until: Instant,
        slot: SemaphorePermit<'_>,
    ) -> End {
        // A process that was stopped until now must not begin what an operator may settle.
        let ended = if Instant::now() < until {
            // The clock first, for the process may be stopped at any point.
            tokio::select! {
                biased;
                () = sleep_until(until) => Ended::Unknown("it did not end in time"),
                ended = effect.perform() => ended,
            }
        } else {
            Ended::DidNotHappen(Refusal::Unavailable)
        };
        drop(slot);
        self.0.metrics.effects_ended.get_or_create(&Reason { reason: ended.word() }).inc();
        if let Ended::Unknown(why) = ended {
            tracing::error!(
                why,
                "the outcome of an effect is not known; it stands as started until an operator settles it"
            );
            return End::PutBack("unresolved", AWAY);
        }
        match timeout(FINISHING, self.finish(attempt, &ended)).await {
            Ok(end) => end,
            Err(_) => unfinished(&ended, "the database was away for too long"),
        }
    }

    /// Commits what an effect came to, again and again while the database is away.
    async fn finish(&self, attempt: &Attempt<'_>, ended: &Ended) -> End {
        let mut pause = FIRST_PAUSE;
        let mut lost = false;
        loop {
            let error = match self.try_to_finish(attempt, ended, lost).await {
                Ok(end) => return end,
                Err(error) => error,
            };
            lost |= matches!(error, FlightError::Lost(_));
            if matches!(error, FlightError::Bug(_) | FlightError::QuotaExceeded) {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the outcome of an effect cannot be committed"
                );
                return unfinished(ended, "a fault of ours");
            }
            tracing::debug!(%error, "the outcome of an effect is to be committed; once more");
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn try_to_finish(&self, attempt: &Attempt<'_>, ended: &Ended, lost: bool) -> Result<End, FlightError> {
        let nothing = Locks::default();
        let locks = if matches!(ended, Ended::Happened(_)) { &attempt.locks } else { &nothing };
        let in_flight = self.0.database.resume(&attempt.command, locks).await?;
        if let Ledger::Settled(outcome) = &in_flight.loaded().ledger
            && *outcome != Outcome::Started
        {
            let outcome = outcome.clone();
            in_flight.abandon().await;
            if !lost {
                tracing::error!(ended = ended.word(), "an operator settled the command before its effect had ended");
            }
            return Ok(End::Told(outcome, Unpublished::default()));
        }
        let Some(conclusion) = attempt.finish(ended, in_flight.loaded()) else {
            in_flight.abandon().await;
            return Ok(unfinished(ended, "the state does not allow to write it down"));
        };
        conclude(in_flight, conclusion).await
    }
}

fn unfinished(ended: &Ended, why: &'static str) -> End {
    let ended = ended.word();
    tracing::error!(ended, why, "an effect ended and its outcome is not committed; an operator settles it");
    End::PutBack("unresolved", AWAY)
}
