//! What watches cost to whom nothing happens.

use anyhow::Context as _;

use super::crowd::Crowd;
use crate::bench::figure::Report;
use crate::bench::measure::Measure;
use crate::bench::rest::Rest;
use crate::bench::stage::Stage;

/// Memory of the edge for one more watcher, in KiB.
const MEMORY_KIB: f64 = 20.0;

pub(crate) async fn measure(
    stage: &Stage,
    measure: Measure,
    crowd: &mut Crowd,
    watchers: usize,
) -> anyhow::Result<Report> {
    let edge = stage.doors.edges.last().context("no edge runs")?;
    let mut rest = Rest::of(stage, measure, "idle watchers", "the edge", edge)?;
    for size in [0, watchers / 10, watchers] {
        crowd.grow(size).await?;
        rest.measure(size).await?;
    }
    rest.report(MEMORY_KIB)
}
