//! Sessions whose bridge is gone (D6). The judgement is the store's, repeated in front of the COMMIT; what it means for
//! a sandbox is the phase machine's.

use roadstead_store::FlightError;
use roadstead_store::mutation::Write;
use roadstead_store::row::Sandbox;
use tokio_util::sync::CancellationToken;

use super::{BATCH, Sweeps, is_full};
use crate::events::change::between;
use crate::operation::session::ended;
use crate::phase::At;

/// Ends lost sessions; how many there were.
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
    let Some(batch) = sweeps.database.lost_sessions(BATCH).await? else { return Ok(0) };
    let count = batch.sandboxes.len();
    let writes = writes(&batch.sandboxes, sweeps.at(batch.now));
    let happened = between(&batch.sandboxes, &writes, batch.now);
    sweeps.marks.committed(batch.conclude(writes).await?);
    sweeps.events.committed(happened);
    sweeps.metrics.sessions_lost.inc_by(count as u64);
    Ok(count)
}

fn writes(sandboxes: &[Sandbox], at: At<'_>) -> Vec<Write> {
    sandboxes.iter().map(|row| ended(row, at)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use roadstead_proto::api::v1::SandboxPhase;

    use super::*;
    use crate::sample;

    #[test]
    fn each_sandbox_goes_on_as_its_phase_says() {
        let ids = sample::CountedIds::default();
        let at = At { now: sample::NOW, ids: &ids, window: Duration::from_secs(300) };
        let rows = [SandboxPhase::Ready, SandboxPhase::Stopping, SandboxPhase::Deleting, SandboxPhase::Provisioning]
            .map(|phase| Sandbox { phase, ..sample::ready_sandbox("s") });
        let [
            Write::UpdateSandbox(ready),
            Write::UpdateSandbox(stopping),
            Write::DeleteSandbox(_),
            Write::UpdateSandbox(waiting),
        ] = &writes(&rows, at)[..]
        else {
            panic!("{:?}", writes(&rows, at))
        };
        assert_eq!((ready.phase, &ready.session), (SandboxPhase::Provisioning, &None));
        assert_eq!(stopping.phase, SandboxPhase::Stopped);
        assert_eq!((waiting.phase, &waiting.session), (SandboxPhase::Provisioning, &None));
    }
}
