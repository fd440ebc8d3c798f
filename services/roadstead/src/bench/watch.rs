//! Watches: how soon they show a change, what an idle one costs, what an outage and a noisy neighbour do to them.

mod change;
mod crowd;
mod idle;
mod latency;
mod lines;
mod noise;
mod outage;
mod watcher;

use clap::Args;

use self::crowd::Crowd;
use super::figure::Report;
use super::measure::Measure;
use super::stage::Stage;

/// How many watch how much.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Idle watches that are open at one edge in the end, a tenth of them at first
    #[arg(long, default_value_t = Settings::DEFAULT.watchers, value_parser = clap::value_parser!(u32).range(10..=19_000))]
    watchers: u32,
    /// Sandboxes that they watch
    #[arg(long, default_value_t = Settings::DEFAULT.sandboxes, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sandboxes: u32,
}

impl Settings {
    pub(crate) const DEFAULT: Self = Self { watchers: 10_000, sandboxes: 1_000 };
}

/// Adds each measurement to the report when it was made.
pub(crate) async fn measure(
    stage: &Stage,
    measure: Measure,
    settings: Settings,
    report: &mut Report,
) -> anyhow::Result<()> {
    change::create_provider(stage).await?;
    report.extend(latency::measure(stage, measure).await?);
    let mut crowd = Crowd::of(stage, settings.sandboxes).await?;
    report.extend(idle::measure(stage, measure, &mut crowd, settings.watchers as usize).await?);
    report.extend(outage::measure(stage, &mut crowd).await?);
    drop(crowd);
    // Last, since it swells the edge.
    report.extend(noise::measure(stage, measure).await?);
    Ok(())
}
