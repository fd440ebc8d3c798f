//! What sessions cost to which nothing happens.

use super::fleet::Fleet;
use crate::bench::figure::Report;
use crate::bench::measure::Measure;
use crate::bench::rest::Rest;
use crate::bench::stage::Stage;

/// Memory of the bridge for one more session and its connection, in KiB.
const MEMORY_KIB: f64 = 30.0;

/// Also the bridge's memory with all of them, in KiB.
pub(crate) async fn measure(stage: &Stage, measure: Measure, fleet: &mut Fleet) -> anyhow::Result<(Report, f64)> {
    let mut rest = Rest::of(stage, measure, "idle sessions", "the bridge", &stage.doors.bridge)?;
    for size in [0, fleet.sandboxes() / 5, fleet.sandboxes()] {
        fleet.grow(size).await?;
        rest.measure(size).await?;
    }
    Ok((rest.report(MEMORY_KIB)?, rest.resident_kib()))
}
