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
/// What takes longer counts as lost.
const PATIENCE: Duration = Duration::from_secs(5);
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

    let beside = "  beside 5,000 lines a second of another";
    let figures = vec![
        Figure::of("log line pushed to watcher", 1, lines),
        Figure::of(beside, 1, lines_beside),
        Figure::of("commit answered to watcher, with lines", 1, states),
        Figure::of(beside, 1, states_beside),
    ];
    let [lines, lines_beside, states, states_beside] = &figures[..] else { anyhow::bail!("four were measured") };
    let lost: u64 = figures.iter().map(Figure::refused).sum();
    #[allow(clippy::cast_precision_loss, reason = "a handful of digits is shown")]
    let lost = lost as f64;
    let goals = vec![
        Goal::at_most(GOAL_MS, "ms at p99", format!("{}, beside a noisy sandbox", lines.what), lines_beside.p99_ms),
        Goal::at_most(GOAL_MS, "ms at p99", format!("{}, beside a noisy sandbox", states.what), states_beside.p99_ms),
        Goal::at_most(0.0, "lines and states not shown", "a quiet sandbox", lost),
    ];
    let what = "lines of the noisy sandbox shown to its own watcher".to_owned();
    let readings = vec![Reading { what, value: noise, unit: "a second" }];
    Ok(Report { figures, readings, goals })
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
    async fn go_on(&mut self, time: Duration) -> anyhow::Result<(Ran, Ran)> {
        let Self { lines, changes, line_watcher, state_watcher } = self;
        let until = Instant::now() + time;
        let logging = async {
            let mut shown = Series::default();
            while Instant::now() < until {
                let sent = Instant::now();
                let number = lines.push(1).await?;
                shown.wait(line_watcher, sent, |shown| shown.line >= number).await?;
            }
            anyhow::Ok(shown.ran())
        };
        let changing = async {
            let mut shown = Series::default();
            while Instant::now() < until {
                let version = changes.next().await?;
                shown.wait(state_watcher, Instant::now(), |shown| shown.version >= version).await?;
            }
            anyhow::Ok(shown.ran())
        };
        tokio::try_join!(logging, changing)
    }
}

/// What was shown one after the other, and what was not.
struct Series {
    began: Instant,
    took: Vec<Duration>,
    errors: BTreeMap<String, u64>,
}

impl Default for Series {
    fn default() -> Self {
        Self { began: Instant::now(), took: Vec::new(), errors: BTreeMap::new() }
    }
}

impl Series {
    /// Waits until it is shown, and takes its time then.
    async fn wait(
        &mut self,
        watcher: &mut Watcher,
        since: Instant,
        wanted: impl FnMut(&Shown) -> bool,
    ) -> anyhow::Result<()> {
        match watcher.until(PATIENCE, wanted).await? {
            Some(shown) => self.took.push(shown.at.saturating_duration_since(since)),
            None => *self.errors.entry("NotShown".to_owned()).or_default() += 1,
        }
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }

    fn ran(self) -> Ran {
        Ran { took: self.took, time: self.began.elapsed(), errors: self.errors }
    }
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
