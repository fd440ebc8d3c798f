//! Results of sessions, many in one transaction: after a change of the whole fleet each of its sessions has one.
//!
//! None needs a row in the ledger. Its number fences it: a copy that comes again, whatever became of the first, finds the
//! number recorded and changes nothing (D6). Whatever is not that simple is given back, and executed by itself.

use std::collections::BTreeMap;

use roadstead_proto::subject::Report;
use roadstead_service_kit::joined::Limits;
use roadstead_store::FlightError;
use roadstead_store::mutation::{Conclusion, Loaded, Outcome, Write};
use roadstead_store::row::Sandbox;
use uuid::Uuid;

use super::{Executor, Unpublished};
use crate::attempt::{Next, Opened};
use crate::caller::Caller;
use crate::envelope::Queue;
use crate::events::change;
use crate::metrics::Reason;
use crate::operation::Name;
use crate::timer;

/// What a transaction holds locks for, and how many connections are taken from single commands.
pub(crate) const LIMITS: Limits = Limits { together: 64, under_way: 2 };

/// How one of them ended, or the command itself if it needs a transaction of its own.
pub(crate) type Answer = Result<Outcome, Box<Opened>>;

/// Whether a delivery may be settled with others. One that comes again is not: whatever kept it may keep them.
pub(super) fn may_be_joined(queue: Queue, command: &Opened, deliveries: u64) -> bool {
    queue == Queue::Reports && command.name == Name::Report(Report::SessionResult) && deliveries <= 1
}

impl Executor {
    /// Settles those of the results that can be settled together; in their order.
    pub(crate) async fn together(&self, results: Vec<Opened>) -> Vec<Answer> {
        let outcomes = self.outcomes(&results).await;
        let reason = match &outcomes {
            Ok(_) => "committed",
            // Its rows were locked: nobody else has changed them.
            Err(error @ (FlightError::Bug(_) | FlightError::Guard(_))) => {
                tracing::error!(
                    error = error as &dyn std::error::Error,
                    "a batch of results failed for a fault of ours"
                );
                "fault"
            }
            Err(error) => {
                tracing::debug!(%error, "results were not settled together");
                "given_back"
            }
        };
        self.0.metrics.result_batches.get_or_create(&Reason { reason }).inc();
        match outcomes {
            Ok(outcomes) => {
                let settled = results.into_iter().zip(outcomes);
                settled.map(|(result, outcome)| outcome.ok_or_else(|| Box::new(result))).collect()
            }
            Err(_) => results.into_iter().map(|result| Err(Box::new(result))).collect(),
        }
    }

    /// The outcomes that were committed, in the order of the results.
    async fn outcomes(&self, results: &[Opened]) -> Result<Vec<Option<Outcome>>, FlightError> {
        let ids: Vec<Uuid> = results.iter().filter_map(sandbox_id).collect();
        // The marks of all continue the trace of the first: what they set to work is joined in turn.
        let traceparent = results.first().map_or("", |first| &first.traceparent);
        let batch = self.0.database.nothing_open(&ids, traceparent).await?;
        let mut rows = batch.sandboxes.iter().map(|row| (row.id, row.clone())).collect();
        let (mut writes, mut unpublished) = (Vec::new(), Unpublished::default());
        let outcomes: Vec<_> = results
            .iter()
            .map(|result| {
                let (own, outcome) = self.decide(result, &mut rows, batch.now, &mut unpublished)?;
                writes.extend(own);
                Some(outcome)
            })
            .collect();
        let marks = batch.conclude(writes).await?;
        self.publish(Unpublished { marks, ..unpublished });
        Ok(outcomes)
    }

    /// What a result writes, and its outcome. None: it has to be executed by itself, as have all but the first of one sandbox.
    fn decide(
        &self,
        result: &Opened,
        rows: &mut BTreeMap<Uuid, Sandbox>,
        now: std::time::SystemTime,
        unpublished: &mut Unpublished,
    ) -> Option<(Vec<Write>, Outcome)> {
        let loaded = Loaded::of_session(now, rows.remove(&sandbox_id(result)?)?);
        let Next::Conclude(conclusion) = self.0.core.attempt(result.clone()).decide(&loaded, false) else {
            return None;
        };
        let (happened, deadline) = (change::of(&conclusion, &loaded.sandboxes, now), timer::of(&conclusion, now));
        match conclusion {
            Conclusion::Effect { writes, outcome: outcome @ Outcome::Response { .. }, .. } => {
                unpublished.events.extend(happened);
                unpublished.deadline = [unpublished.deadline, deadline].into_iter().flatten().min();
                Some((writes, outcome))
            }
            _ => None,
        }
    }
}

fn sandbox_id(result: &Opened) -> Option<Uuid> {
    match result.caller {
        Caller::Sandbox { id, .. } => Some(id),
        Caller::User(_) | Caller::Bootstrap { .. } => None,
    }
}
