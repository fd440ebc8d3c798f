//! Mutations through edge, broker and admission, beside the same transactions flown without them.

use std::time::{Duration, Instant};

use super::figure::{Figure, Goal, Report};
use super::floor::Floor;
use super::measure::Measure;
use super::path::{self, Load};
use super::stage::{CALLERS, Stage};

/// Callers at the same time.
const CALLERS_AT_A_TIME: [usize; 3] = [1, 16, CALLERS];
/// Parts of the floor's throughput that are to be reached by the most callers.
const THROUGHPUT: f64 = 0.4;
/// What the way through doors and broker may add to the latency of one caller, in milliseconds at the median.
const ADDED_MS: f64 = 2.0;
/// When every mark is to be published after the end of a load, in milliseconds.
const MARKS_GONE_MS: f64 = 1000.0;
/// How long marks are waited for.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);

pub(crate) async fn measure(stage: &Stage, measure: Measure) -> anyhow::Result<Report> {
    let floor = Floor::open(stage).await?;
    warm_up(stage, &floor).await?;
    let mut report = Report::default();
    report.figures.push(measure.run("broker: one round trip", 1, |_| floor.round_trip()).await?);
    let apart = CALLERS_AT_A_TIME.into_iter().flat_map(|callers| [false, true].map(|id| (Load::apart(id), callers)));
    let shared = [Load::busy(false), Load::busy(true), Load::hot(false), Load::hot(true)].map(|load| (load, CALLERS));
    for (load, callers) in apart.chain(shared) {
        let (figure, raw) = pair(stage, measure, &floor, load, callers).await?;
        report.goals.extend(goal(load, &figure, &raw));
        report.figures.extend([figure, raw]);
    }
    report.goals.extend(goals_of_all(&report.figures));
    Ok(report)
}

/// Opens every connection and prepares every statement, so that no measurement pays for that.
async fn warm_up(stage: &Stage, floor: &Floor) -> anyhow::Result<()> {
    let measure = Measure { time: Duration::from_secs(1) };
    for load in [Load::apart(false), Load::apart(true)] {
        measure.run("", CALLERS, |at| floor.mutate(load, at)).await?;
        measure.run("", CALLERS, |at| path::mutate(stage, load, at)).await?;
    }
    Ok(())
}

/// A load and its floor.
async fn pair(
    stage: &Stage,
    measure: Measure,
    floor: &Floor,
    load: Load,
    callers: usize,
) -> anyhow::Result<(Figure, Figure)> {
    let raw = measure.run(load.floor(), callers, |at| floor.mutate(load, at)).await?;
    let mut figure = measure.run(load.what(), callers, |at| path::mutate(stage, load, at)).await?.beside(&raw);
    figure.marks_gone_ms = Some(marks_gone(floor).await?);
    Ok((figure, raw))
}

/// What a load is to reach beside its floor. Callers who share something have no goal but to be answered.
fn goal(load: Load, figure: &Figure, raw: &Figure) -> Option<Goal> {
    let of = format!("{}, callers: {}", figure.what, figure.callers);
    match figure.callers {
        _ if !load.is_apart() => None,
        1 => Some(Goal::at_most(ADDED_MS, "ms over the floor at p50", of, figure.p50_ms - raw.p50_ms)),
        CALLERS => {
            let part = figure.of_floor.unwrap_or(f64::NAN);
            Some(Goal::at_least(THROUGHPUT, "of the floor's throughput", of, part))
        }
        _ => None,
    }
}

fn goals_of_all(figures: &[Figure]) -> [Goal; 2] {
    let refused: u64 = figures.iter().map(Figure::refused).sum();
    let gone = figures.iter().filter_map(|figure| figure.marks_gone_ms).fold(0.0, f64::max);
    #[allow(clippy::cast_precision_loss, reason = "a handful of digits is shown")]
    let refused = refused as f64;
    [
        Goal::at_most(0.0, "calls refused", "all mutations", refused),
        Goal::at_most(MARKS_GONE_MS, "ms until all marks are published", "all mutations", gone),
    ]
}

/// Milliseconds until no mark waits any more.
async fn marks_gone(floor: &Floor) -> anyhow::Result<f64> {
    let began = Instant::now();
    while floor.waiting_marks().await? > 0 {
        anyhow::ensure!(began.elapsed() < PATIENCE, "marks are not published");
        tokio::time::sleep(POLL).await;
    }
    Ok(began.elapsed().as_secs_f64() * 1000.0)
}
