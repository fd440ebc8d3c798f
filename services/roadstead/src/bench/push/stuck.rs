//! Supervisors that read nothing any more, and those beside them.

use super::fleet::Fleet;
use super::fleet_wide::ALL_MS;
use super::single::Single;
use crate::bench::figure::{Goal, Report};
use crate::bench::measure::Measure;

/// One of so many is stuck.
const NTH: usize = 10;
/// As if nobody were stuck, in milliseconds at p99.
const ONE_MS: f64 = 100.0;

pub(crate) async fn measure(measure: Measure, fleet: &mut Fleet, single: &mut Single) -> anyhow::Result<Report> {
    fleet.stop_reading(NTH);
    let others = fleet.change("  the same, to the others while a tenth is stuck").await?;
    let pushed = single.change("commit answered to supervisor, while a tenth is stuck", measure).await?;
    let again = fleet.read_again("reading again to being current").await?;
    let goals = vec![
        Goal::at_most(ALL_MS, "ms until the others have it", "a fleet-wide change", others.longest_ms),
        Goal::at_most(ONE_MS, "ms at p99", pushed.what, pushed.p99_ms),
        Goal::at_most(ALL_MS, "ms until they are current", "stuck supervisors that read again", again.longest_ms),
    ];
    Ok(Report { figures: vec![others, pushed, again], goals, ..Report::default() })
}
