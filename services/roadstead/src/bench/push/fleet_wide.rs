//! Changes of the whole fleet: how soon all have one, and what they do to the change of one sandbox.

use tokio_util::sync::CancellationToken;

use super::fleet::Fleet;
use super::single::Single;
use crate::bench::figure::{Goal, Report};
use crate::bench::measure::Measure;

/// How often the whole fleet is changed while it is changed alone.
const CHANGES: usize = 3;
/// Until all have a change, in milliseconds.
pub(crate) const ALL_MS: f64 = 10_000.0;
/// Until a supervisor has the change of its sandbox meanwhile, in milliseconds at p99.
const ONE_MS: f64 = 1000.0;

/// One change after the other, and nothing else.
pub(crate) async fn converge(fleet: &mut Fleet) -> anyhow::Result<Report> {
    let mut report = Report::default();
    for _ in 0..CHANGES {
        report.figures.push(fleet.change("fleet-wide change answered to each supervisor").await?);
    }
    let slowest = report.figures.iter().map(|figure| figure.longest_ms).fold(0.0, f64::max);
    report.goals.push(Goal::at_most(ALL_MS, "ms until all have it", "a fleet-wide change", slowest));
    Ok(report)
}

/// Changes of one sandbox while the fleet is changed again as soon as all have the change before.
pub(crate) async fn beside(measure: Measure, fleet: &mut Fleet, single: &mut Single) -> anyhow::Result<Report> {
    // The last change is waited for: the next one is told from it.
    let over = CancellationToken::new();
    let changing_one = async {
        let pushed = single.change("  beside fleet-wide changes", measure).await;
        over.cancel();
        pushed
    };
    let changing_all = async {
        while !over.is_cancelled() {
            fleet.change("").await?;
        }
        anyhow::Ok(())
    };
    let (pushed, ()) = tokio::try_join!(changing_one, changing_all)?;
    let goal =
        Goal::at_most(ONE_MS, "ms at p99", "commit answered to supervisor, beside fleet-wide changes", pushed.p99_ms);
    Ok(Report { figures: vec![pushed], goals: vec![goal], ..Report::default() })
}
