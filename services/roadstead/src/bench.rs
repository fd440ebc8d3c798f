//! `roadstead bench`: what mutations, reads, watches and pushes cost here, beside the floors of the same run.
//!
//! Nothing is compared with another machine or another day: each figure stands beside a floor that was measured in the
//! same run, on the same broker and database, or beside a goal that any machine of two cores has to reach.

mod admission;
mod figure;
mod floor;
mod measure;
mod path;
mod process;
mod push;
mod rest;
mod stage;
mod watch;

use std::time::Duration;

use clap::{Args, Subcommand};

use self::figure::Report;
use self::measure::Measure;
use self::stage::Stage;
use crate::client::output::line;

/// Measure on this machine what a deployment costs, beside floors taken in the same run.
///
/// Starts a deployment of its own (two edges, two admissions, one of each other role, in a folder that is removed), loads
/// it with closed loops, in which a caller asks again as soon as it was answered, and prints for each figure throughput,
/// latency, its ratio to the floor, and for each goal whether it was reached. Without a subcommand everything is measured.
///
/// Build with --release, and let nothing else run meanwhile: what a busy machine adds is not Roadstead's.
#[derive(Args, Debug)]
pub(crate) struct Command {
    #[command(subcommand)]
    part: Option<Part>,
    /// How long each measurement lasts, in seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=300), global = true)]
    seconds: u64,
    /// Print one JSON object instead of tables
    #[arg(long, global = true)]
    json: bool,
}

/// What is measured.
#[derive(Subcommand, Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Mutations: throughput and latency of 1, 16 and 64 callers, with and without request ids; one busy caller; one hot
    /// sandbox.
    ///
    /// Each stands beside the two flights of the same mutation and the deletion of its marks, flown against the same
    /// Postgres by as many callers without doors and broker. After each, the time until every mark is published is taken,
    /// and every answer that was not OK is counted by its code.
    Admission,
    /// Watches: from the answer of a commit to the event on another edge, alone and beside a sandbox that logs 5,000 lines
    /// a second; memory and statements of idle ones; the time until all are current after the broker died
    ///
    /// The watches are in this process, so that the edge's memory is its own. What idle ones cost is counted for a minute
    /// or more at each of three sizes: none, a tenth, all.
    Watch(watch::Settings),
    /// Configuration: reads of it; from the answer of a commit to the supervisor, alone, beside changes of the whole fleet
    /// and beside stuck supervisors; the time until a fleet has a change; memory and statements of idle sessions; the time
    /// until all are back after the bridge died
    ///
    /// The supervisors are in this process, each with a connection of its own, so that the bridge's memory is its own.
    /// What idle sessions cost is counted for a minute or more at each of three sizes: none, a fifth, all.
    Push(push::Settings),
}

impl Part {
    const ALL: [Self; 3] =
        [Self::Admission, Self::Watch(watch::Settings::DEFAULT), Self::Push(push::Settings::DEFAULT)];

    async fn measure(self, stage: &Stage, measure: Measure, report: &mut Report) -> anyhow::Result<()> {
        match self {
            Self::Admission => report.extend(admission::measure(stage, measure).await?),
            Self::Watch(settings) => watch::measure(stage, measure, settings, report).await?,
            Self::Push(settings) => push::measure(stage, measure, settings, report).await?,
        }
        Ok(())
    }
}

impl Command {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let measure = Measure { time: Duration::from_secs(self.seconds) };
        let parts = self.part.map_or(Part::ALL.to_vec(), |part| vec![part]);
        let stage = Stage::set().await?;
        let mut report = Report::default();
        let measured = async {
            for part in parts {
                part.measure(&stage, measure, &mut report).await?;
            }
            anyhow::Ok(())
        };
        let measured = measured.await;
        let cleared = stage.clear().await;
        // Also what was measured before something failed.
        line(&if self.json { report.json()? } else { report.text() })?;
        measured.and(cleared)
    }
}
