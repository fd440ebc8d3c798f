//! From the answer of a commit to the event on another edge, beside what broker and database take by themselves.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::change::Changes;
use super::watcher::Watcher;
use crate::bench::figure::{Figure, Goal, Report};
use crate::bench::floor::Floor;
use crate::bench::measure::{Measure, Ran};
use crate::bench::path;
use crate::bench::stage::Stage;

/// The sandbox that is watched.
const AT: usize = 1;
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn measure(stage: &Stage, measure: Measure) -> anyhow::Result<Report> {
    let mut figures = Floor::open(stage).await?.measure(measure).await?;

    let edge = stage.busy.last().context("no edge runs")?.clone();
    let mut watcher = Watcher::open(edge, path::sandbox(AT), false).await?;
    let mut changes = Changes::of(stage, AT)?;
    let (began, mut from_request, mut from_answer) = (Instant::now(), Vec::new(), Vec::new());
    while began.elapsed() < measure.time {
        let sent = Instant::now();
        let version = changes.next().await?;
        let answered = Instant::now();
        let shown =
            watcher.until(PATIENCE, |shown| shown.version >= version).await?.context("a change is not shown")?;
        from_request.push(shown.at - sent);
        from_answer.push(shown.at.saturating_duration_since(answered));
    }
    let figure = |what, took| Figure::of(what, 1, Ran { took, time: began.elapsed(), errors: BTreeMap::new() });
    let whole = figure("change sent to watcher on another edge", from_request);
    let shown = figure("commit answered to watcher on another edge", from_answer);
    let goals = vec![
        Goal::at_most(5.0, "ms at p50", shown.what, shown.p50_ms),
        Goal::at_most(50.0, "ms at p99", shown.what, shown.p99_ms),
    ];
    figures.extend([whole, shown]);
    Ok(Report { figures, goals, ..Report::default() })
}
