//! The broker dies while everything that is watched changes: how long until everybody has seen it.

use anyhow::Context as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::Instant;

use super::crowd::Crowd;
use crate::bench::figure::{Goal, Reading, Report};
use crate::bench::stage::Stage;
use crate::demo::postgres;

/// From the broker's death until all is seen, in milliseconds.
const GOAL_MS: f64 = 10_000.0;

pub(crate) async fn measure(stage: &Stage, crowd: &mut Crowd) -> anyhow::Result<Report> {
    let data = stage.target.folder();
    let broker = std::fs::read_to_string(data.join("nats/pid")).context("the broker's process is not told")?;
    let broker = Pid::from_raw(broker.trim().parse()?);
    let change =
        format!("UPDATE roadstead.sandbox SET resource_version = resource_version + 1 WHERE {}", Crowd::is_of_it());
    let before = crowd.versions();

    // Frozen first: what changes now is told by nobody, and there is nobody to be asked.
    kill(broker, Signal::SIGSTOP)?;
    let changed = postgres::ask(data, &change).await;
    let killed = Instant::now();
    kill(broker, Signal::SIGKILL)?;
    changed?;
    let seen = crowd.newer_than(&before).await?;
    let value = seen.saturating_duration_since(killed).as_secs_f64() * 1000.0;

    let what = format!("death of the broker to current states, watchers: {}", crowd.len());
    let goal = Goal::at_most(GOAL_MS, "ms until all are current", "death of the broker", value);
    Ok(Report { readings: vec![Reading { what, value, unit: "ms" }], goals: vec![goal], ..Report::default() })
}
