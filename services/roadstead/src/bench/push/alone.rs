//! What one gets who is alone, beside what broker and database take by themselves.

use super::single::Single;
use crate::bench::figure::{Goal, Report};
use crate::bench::floor::Floor;
use crate::bench::measure::Measure;
use crate::bench::path;
use crate::bench::stage::Stage;

const READERS: usize = 16;

/// Reads of configurations, and the floors.
pub(crate) async fn reads(stage: &Stage, measure: Measure) -> anyhow::Result<Report> {
    let mut figures = Floor::open(stage).await?.measure(measure).await?;
    let read = measure.run("GetSandboxConfig", READERS, |at| path::read_config(stage, at)).await?;
    let goals = vec![Goal::at_least(2000.0, "a second", read.what, read.per_second)];
    figures.push(read);
    Ok(Report { figures, goals, ..Report::default() })
}

/// Changes on their way to a supervisor.
pub(crate) async fn changes(measure: Measure, single: &mut Single) -> anyhow::Result<Report> {
    let pushed = single.change("commit answered to supervisor has it", measure).await?;
    let goals = vec![
        Goal::at_most(10.0, "ms at p50", pushed.what, pushed.p50_ms),
        Goal::at_most(100.0, "ms at p99", pushed.what, pushed.p99_ms),
    ];
    Ok(Report { figures: vec![pushed], goals, ..Report::default() })
}
