//! Sandboxes whose time for connecting and accepting has passed.

use roadstead_store::FlightError;
use roadstead_store::mutation::Write;
use roadstead_store::row::Sandbox;
use tokio_util::sync::CancellationToken;

use super::{BATCH, Sweeps, is_full};
use crate::events::change::between;
use crate::operation::session::updated;
use crate::phase::{self, Applied, At, Event};

/// Ends the provisioning of those; how many there were.
pub(super) async fn sweep(sweeps: &Sweeps, stop: &CancellationToken) -> Result<usize, FlightError> {
    let mut total = 0;
    while !stop.is_cancelled() {
        let count = batch(sweeps).await?;
        total += count;
        if !is_full(count) {
            break;
        }
    }
    Ok(total)
}

async fn batch(sweeps: &Sweeps) -> Result<usize, FlightError> {
    let Some(batch) = sweeps.database.past_deadline(BATCH).await? else { return Ok(0) };
    let count = batch.sandboxes.len();
    let writes = writes(&batch.sandboxes, sweeps.at(batch.now));
    if writes.is_empty() {
        batch.abandon().await;
        return Ok(0);
    }
    let happened = between(&batch.sandboxes, &writes, batch.now);
    sweeps.marks.committed(batch.conclude(writes).await?);
    sweeps.events.committed(happened);
    sweeps.metrics.provisioning_timed_out.inc_by(count as u64);
    Ok(count)
}

fn writes(sandboxes: &[Sandbox], at: At<'_>) -> Vec<Write> {
    let timed_out = |row: &Sandbox| {
        let (mut row, live) = (row.clone(), row.session.is_some());
        let applied = phase::apply(&mut row, Event::DeadlinePassed, live, at);
        (applied == Applied::Changed).then(|| updated(&mut row))
    };
    sandboxes.iter().filter_map(timed_out).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use roadstead_proto::api::v1::SandboxPhase;

    use super::*;
    use crate::sample;

    #[test]
    fn only_what_is_being_provisioned_times_out() {
        let ids = sample::CountedIds::default();
        let at = At { now: sample::NOW, ids: &ids, window: Duration::from_secs(300) };
        let rows = [sample::sandbox("s"), sample::ready_sandbox("r")];
        let writes = writes(&rows, at);
        let [Write::UpdateSandbox(row)] = &writes[..] else { panic!("{writes:?}") };
        assert_eq!((row.phase, row.provisioning_deadline), (SandboxPhase::Error, None));
        assert_eq!(row.status.conditions[0].reason, "ProvisioningTimedOut");
        assert!(row.status.provisioning.as_ref().unwrap().timeout_time.is_some());
    }
}
