//! Configuration: reads of it, and its way from the answer of a commit to one supervisor and to thousands.

mod alone;
mod fleet;
mod fleet_wide;
mod idle;
mod single;
mod storm;
mod stuck;
mod supervised;

use clap::Args;

use self::fleet::Fleet;
use self::single::Single;
use super::figure::Report;
use super::measure::Measure;
use super::stage::Stage;

/// How many are pushed to.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Sessions of one bridge in the end, a fifth of them at first, each of a sandbox of its own
    #[arg(long, default_value_t = Settings::DEFAULT.sessions, value_parser = clap::value_parser!(u32).range(10..=9_000))]
    sessions: u32,
}

impl Settings {
    pub(crate) const DEFAULT: Self = Self { sessions: 5_000 };
}

/// Adds each measurement to the report when it was made.
pub(crate) async fn measure(
    stage: &Stage,
    measure: Measure,
    settings: Settings,
    report: &mut Report,
) -> anyhow::Result<()> {
    report.extend(alone::reads(stage, measure).await?);
    let mut single = Single::of(stage).await?;
    report.extend(alone::changes(measure, &mut single).await?);
    let mut fleet = Fleet::of(stage, settings.sessions).await?;
    let (idle, resident_kib) = idle::measure(stage, measure, &mut fleet).await?;
    report.extend(idle);
    report.extend(fleet_wide::converge(&mut fleet).await?);
    report.extend(fleet_wide::beside(measure, &mut fleet, &mut single).await?);
    report.extend(stuck::measure(measure, &mut fleet, &mut single).await?);
    // Last, since it costs the process whose memory was measured.
    report.extend(storm::measure(stage, &mut fleet, resident_kib).await?);
    Ok(())
}
