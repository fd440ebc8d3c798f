//! What is due, done when it is due: windows for provisioning that close, restarts, and credentials that expire.

use std::time::Duration;

use roadstead_proto::api::v1::SandboxPhase;
use roadstead_store::FlightError;
use roadstead_store::batch::Batch;
use roadstead_store::mutation::Write;
use roadstead_store::row::Sandbox;
use tokio_util::sync::CancellationToken;

use super::{BATCH, Sweeps, is_full, pause, report};
use crate::events::change::between;
use crate::metrics::Reason;
use crate::operation::session::updated;
use crate::phase::{self, Applied, At, Event};
use crate::timer;

/// Pause when what is due cannot be done now: somebody is at work on its row, or another replica has just done it.
const HELD: Duration = Duration::from_millis(100);
/// Pause when Postgres cannot be asked, or does not do it.
const AWAY: Duration = Duration::from_secs(1);

/// Waits for deadlines and sees to them, until `stop`.
pub(super) async fn run(sweeps: &Sweeps, stop: &CancellationToken) {
    loop {
        sweeps.timer.looks();
        let rested = match sweeps.database.nearest_deadline().await {
            Ok(nearest) => {
                sweeps.metrics.deadline_overdue_seconds.set(timer::overdue(nearest).as_secs_f64());
                let until = timer::pause(nearest);
                if until.is_zero() {
                    pause(see_to(sweeps, stop).await, stop).await
                } else {
                    stop.run_until_cancelled(sweeps.timer.wait(nearest.now + until, until)).await.is_some()
                }
            }
            Err(error) => {
                tracing::debug!(%error, "the nearest deadline cannot be read");
                pause(AWAY, stop).await
            }
        };
        if !rested {
            return;
        }
    }
}

/// Does what is due; how long to pause then.
async fn see_to(sweeps: &Sweeps, stop: &CancellationToken) -> Duration {
    let (sandboxes, credentials) = (sandboxes(sweeps, stop).await, credentials(sweeps, stop).await);
    let rest = match (&sandboxes, &credentials) {
        (Ok(0), Ok(0)) => HELD,
        (Ok(_), Ok(_)) => Duration::ZERO,
        (Err(_), _) | (_, Err(_)) => AWAY,
    };
    report("deadlines", sandboxes);
    report("expirations", credentials);
    rest
}

/// One that cannot be written holds up no other: what fails in a batch is done one by one, and what fails alone is left
/// out until the next round.
async fn sandboxes(sweeps: &Sweeps, stop: &CancellationToken) -> Result<usize, FlightError> {
    let (mut total, mut most) = (0, BATCH);
    let (mut left_out, mut failure) = (Vec::new(), None);
    while !stop.is_cancelled() && !is_full(left_out.len()) {
        let Some(batch) = sweeps.database.past_deadline(most, &left_out).await? else { break };
        let ids: Vec<_> = batch.sandboxes.iter().map(|row| row.id).collect();
        match (conclude(sweeps, batch).await, ids.as_slice()) {
            (Ok(()), ids) => {
                total += ids.len();
                if most == BATCH && !is_full(ids.len()) {
                    break;
                }
            }
            (Err(error), [id]) => {
                tracing::warn!(%id, %error, "a sandbox whose deadline has come is left out");
                left_out.push(*id);
                (most, failure) = (BATCH, Some(error));
            }
            (Err(error), _) => {
                tracing::debug!(%error, "sandboxes whose deadline has come are seen to one by one");
                most = 1;
            }
        }
    }
    failure.map_or(Ok(total), Err)
}

async fn conclude(sweeps: &Sweeps, batch: Batch) -> Result<(), FlightError> {
    let writes = writes(&batch.sandboxes, sweeps.at(batch.now));
    let happened = between(&batch.sandboxes, &writes, batch.now);
    let kinds: Vec<_> = batch.sandboxes.iter().map(kind).collect();
    sweeps.marks.committed(batch.conclude(writes).await?);
    sweeps.events.committed(happened);
    for kind in kinds {
        sweeps.metrics.deadlines.get_or_create(&Reason { reason: kind }).inc();
    }
    Ok(())
}

async fn credentials(sweeps: &Sweeps, stop: &CancellationToken) -> Result<usize, FlightError> {
    let mut total = 0;
    while !stop.is_cancelled() {
        let marks = sweeps.database.expire_credentials(BATCH).await?;
        let count = marks.len();
        sweeps.marks.committed(marks);
        sweeps.metrics.deadlines.get_or_create(&Reason { reason: "expiration" }).inc_by(count as u64);
        total += count;
        if !is_full(count) {
            break;
        }
    }
    Ok(total)
}

/// What a sandbox's deadline is for.
const fn kind(row: &Sandbox) -> &'static str {
    match row.phase {
        SandboxPhase::Error | SandboxPhase::Completed => "restart",
        SandboxPhase::Provisioning | SandboxPhase::Starting => "provisioning",
        _ => "stray",
    }
}

fn writes(sandboxes: &[Sandbox], at: At<'_>) -> Vec<Write> {
    let due = |row: &Sandbox| {
        let (mut row, live) = (row.clone(), row.session.is_some());
        if phase::apply(&mut row, Event::Due, live, at) != Applied::Changed {
            // It means nothing in this phase. Left there, it would be due for ever.
            row.deadline = None;
        }
        updated(&mut row)
    };
    sandboxes.iter().map(due).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn what_is_being_provisioned_times_out_and_what_has_ended_is_restarted() {
        let ids = sample::CountedIds::default();
        let at = At { now: sample::NOW, ids: &ids, window: Duration::from_secs(300) };
        let ended = Sandbox { phase: SandboxPhase::Error, ..sample::sandbox("e") };
        let stray = Sandbox { deadline: Some(sample::NOW), ..sample::ready_sandbox("r") };
        let rows = [sample::sandbox("s"), ended, stray];
        assert_eq!(rows.each_ref().map(kind), ["provisioning", "restart", "stray"]);
        let writes = writes(&rows, at);
        let [Write::UpdateSandbox(late), Write::UpdateSandbox(restarted), Write::UpdateSandbox(stray)] = &writes[..]
        else {
            panic!("{writes:?}")
        };
        assert_eq!((stray.phase, stray.deadline), (SandboxPhase::Ready, None));
        assert_eq!((late.phase, late.deadline), (SandboxPhase::Error, None));
        assert_eq!(late.status.conditions[0].reason, "ProvisioningTimedOut");
        assert!(late.status.provisioning.as_ref().unwrap().timeout_time.is_some());
        assert_eq!((restarted.phase, restarted.status.restart_count), (SandboxPhase::Starting, 1));
    }
}
