//! What time brings about: sessions whose bridge is gone, deadlines that come, records that are old enough. Each sweep
//! works in small batches that skip what others hold, so any number of replicas share it and nobody waits for it.

mod deadline;
mod lost_session;
mod retention;

use std::sync::Arc;
use std::time::Duration;

use roadstead_store::{Database, FlightError};
use tokio_util::sync::CancellationToken;

use crate::context::{Ids, Rules};
use crate::events::Events;
use crate::metrics::Metrics;
use crate::phase::At;
use crate::relay::Marks;
use crate::timer::Timer;

/// Sandboxes that one transaction changes.
const BATCH: u32 = 50;
const LOOK_EVERY: Duration = Duration::from_secs(1);
const RETENTION_EVERY: Duration = Duration::from_secs(10);

/// What sweeps work with. Cheap to clone.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "made of parts that have nothing to show")]
pub(crate) struct Sweeps {
    pub(crate) database: Database,
    pub(crate) marks: Marks,
    pub(crate) events: Events,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) ids: Arc<dyn Ids>,
    pub(crate) rules: Rules,
    pub(crate) timer: Timer,
}

impl Sweeps {
    /// Ends sessions whose bridge is gone, until `stop`.
    pub(crate) async fn sessions(self, stop: CancellationToken) {
        while pause(LOOK_EVERY, &stop).await {
            report("sessions", lost_session::sweep(&self, &stop).await);
        }
    }

    /// Does what is due when it is due, until `stop`.
    pub(crate) async fn deadlines(self, stop: CancellationToken) {
        deadline::run(&self, &stop).await;
    }

    /// Removes old records, until `stop`.
    pub(crate) async fn records(self, stop: CancellationToken) {
        while pause(RETENTION_EVERY, &stop).await {
            retention::round(&self, &stop).await;
        }
    }

    fn at(&self, now: std::time::SystemTime) -> At<'_> {
        At { now, ids: self.ids.as_ref(), window: self.rules.provisioning_window }
    }
}

/// Waits; false if that was interrupted by `stop`.
async fn pause(time: Duration, stop: &CancellationToken) -> bool {
    stop.run_until_cancelled(tokio::time::sleep(time)).await.is_some()
}

/// Whether a batch of that size says that there may be more.
const fn is_full(count: usize) -> bool {
    count >= BATCH as usize
}

fn report(what: &'static str, swept: Result<usize, FlightError>) {
    match swept {
        Ok(0) => {}
        Ok(count) => tracing::info!(what, count, "swept"),
        // The judgement did not hold at the end: somebody renewed. The next round finds out.
        Err(FlightError::Guard(_) | FlightError::Retry(_) | FlightError::Lost(_)) => {
            tracing::debug!(what, "a sweep was overtaken");
        }
        Err(error) => tracing::warn!(what, error = &error as &dyn std::error::Error, "a sweep failed"),
    }
}
