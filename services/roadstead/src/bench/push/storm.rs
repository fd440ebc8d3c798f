//! The bridge dies, and all its supervisors come back at once.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::fleet::Fleet;
use crate::bench::figure::{Goal, Reading, Report};
use crate::bench::process;
use crate::bench::stage::Stage;

const PATIENCE: Duration = Duration::from_secs(60);
/// Until the last has a session again, in milliseconds.
const ALL_MS: f64 = 60_000.0;
/// What the bridge may take meanwhile of the memory with which it had as many sessions at rest.
const PEAK: f64 = 1.5;

/// `resident_kib` is the bridge's memory with all sessions at rest.
pub(crate) async fn measure(stage: &Stage, fleet: &mut Fleet, resident_kib: f64) -> anyhow::Result<Report> {
    let (bridge, sessions) = (process::behind(stage, &stage.doors.bridge)?, fleet.sessions());
    kill(Pid::from_raw(i32::try_from(bridge)?), Signal::SIGKILL)?;
    let killed = Instant::now();
    let back = fleet.connected_again("death of the bridge to a session again", &sessions, killed).await?;
    let successor = process::successor(stage, &stage.doors.bridge, bridge, PATIENCE).await?;
    let peak_kib = process::peak_kib(successor)?;

    let what = "most memory of the bridge while all came back".to_owned();
    let readings = vec![Reading { what, value: peak_kib, unit: "KiB" }];
    let goals = vec![
        Goal::at_most(ALL_MS, "ms until all are back", "death of the bridge", back.longest_ms),
        Goal::at_most(PEAK, "of the memory at rest", "the bridge while all came back", peak_kib / resident_kib),
    ];
    Ok(Report { figures: vec![back], readings, goals })
}
