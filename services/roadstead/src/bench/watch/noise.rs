//! Lines and states of one sandbox, alone and while another logs as much as a sandbox may.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::time::{MissedTickBehavior, interval};

use super::change::Changes;
use super::lines::Lines;
use super::watcher::{Shown, Watcher};
use crate::bench::figure::{Figure, Goal, Reading, Report};
use crate::bench::measure::{Measure, Ran};
use crate::bench::path;
use crate::bench::stage::Stage;

const QUIET: usize = 2;
const NOISY: usize = 3;
/// Lines in a batch, and the time of one: 5,000 lines a second.
const BATCH: u64 = 100;
const EVERY: Duration = Duration::from_millis(20);
/// Pause of the quiet sandbox between two lines, or two changes.
const PAUSE: Duration = Duration::from_millis(20);
/// What a neighbour may make of the time until a line or a state is shown, in milliseconds at p99.
const GOAL_MS: f64 = 50.0;

pub(crate) async fn measure(stage: &Stage, measure: Measure) -> anyhow::Result<Report> {
    let edge = stage.busy.last().context("no edge runs")?;
    let mut quiet = Quiet {
        lines: Lines::of(stage, QUIET).await?,
        changes: Changes::of(stage, QUIET)?,
        line_watcher: Watcher::open(edge.clone(), path::sandbox(QUIET), true).await?,
        state_watcher: Watcher::open(edge.clone(), path::sandbox(QUIET), false).await?,
    };
    // Opens every connection, so that no measurement pays for that.
    quiet.go_on(Duration::from_secs(1)).await?;

    let (lines, states) = quiet.go_on(measure.time).await?;
    let mut noisy = Lines::of(stage, NOISY).await?;
    let listener = Watcher::open(edge.clone(), path::sandbox(NOISY), true).await?;
    let (before, began) = (listener.newest().line, Instant::now());
    let ((lines_beside, states_beside), time) = tokio::select! {
        went = quiet.go_on(measure.time) => (went?, began.elapsed()),
        ended = make_noise(&mut noisy) => return Err(ended),
    };
    #[allow(clippy::cast_precision_loss, reason = "a handful of digits is shown")]
    let noise = (listener.newest().line - before) as f64 / time.as_secs_f64();

    let figure = |what, took| Figure::of(what, 1, Ran { took, time, errors: BTreeMap::new() });
    let lines_beside = figure("  beside 5,000 lines a second of another", lines_beside);
    let states_beside = figure("  beside 5,000 lines a second of another", states_beside);
    let goals = vec![
        Goal::at_most(GOAL_MS, "ms at p99", "log line beside a noisy sandbox", lines_beside.p99_ms),
        Goal::at_most(GOAL_MS, "ms at p99", "state beside a noisy sandbox", states_beside.p99_ms),
    ];
    let figures = vec![
        figure("log line pushed to watcher", lines),
        lines_beside,
        figure("commit answered to watcher, with lines", states),
        states_beside,
    ];
    let what = "lines of the noisy sandbox shown to its own watcher".to_owned();
    Ok(Report { figures, readings: vec![Reading { what, value: noise, unit: "a second" }], goals })
}

/// A sandbox that logs and changes now and then, and those who watch it.
struct Quiet {
    lines: Lines,
    changes: Changes,
    line_watcher: Watcher,
    state_watcher: Watcher,
}

impl Quiet {
    /// Logs and changes for so long: how long each line took to be shown after it was sent, and each state after the
    /// answer.
    async fn go_on(&mut self, time: Duration) -> anyhow::Result<(Vec<Duration>, Vec<Duration>)> {
        let Self { lines, changes, line_watcher, state_watcher } = self;
        let until = Instant::now() + time;
        let logging = async {
            let mut took = Vec::new();
            while Instant::now() < until {
                let sent = Instant::now();
                let number = lines.push(1).await?;
                took.push(shown(line_watcher, sent, |shown| shown.line >= number).await?);
            }
            anyhow::Ok(took)
        };
        let changing = async {
            let mut took = Vec::new();
            while Instant::now() < until {
                let version = changes.next().await?;
                took.push(shown(state_watcher, Instant::now(), |shown| shown.version >= version).await?);
            }
            anyhow::Ok(took)
        };
        tokio::try_join!(logging, changing)
    }
}

/// How long after `since` it was shown; then takes its time.
async fn shown(watcher: &mut Watcher, since: Instant, wanted: impl FnMut(&Shown) -> bool) -> anyhow::Result<Duration> {
    let shown = watcher.until(wanted).await?;
    tokio::time::sleep(PAUSE).await;
    Ok(shown.at.saturating_duration_since(since))
}

/// Logs at the limit until it fails.
async fn make_noise(noisy: &mut Lines) -> anyhow::Error {
    let mut clock = interval(EVERY);
    clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
    loop {
        clock.tick().await;
        if let Err(error) = noisy.push(BATCH).await {
            return error;
        }
    }
}
