//! What those cost to whom nothing happens: memory of the process that holds them, statements of the database.

use std::path::Path;
use std::time::{Duration, Instant};

use super::figure::{Goal, Reading, Report};
use super::measure::Measure;
use super::process;
use super::stage::Stage;
use crate::demo::postgres;

/// Statements a second that any number of them may cause together. None is meant; what is counted comes in lumps.
const STATEMENTS: f64 = 3.0;
/// A backend of Postgres that rests tells what it has done at most this long after.
const TOLD: Duration = Duration::from_secs(11);
/// Statements are counted for at least so long, and the quietest window tells: now and then a role looks after all that
/// it holds, whoever is there.
const COUNTED: Duration = Duration::from_secs(60);
const WINDOW: Duration = Duration::from_secs(5);

/// What was measured at each size so far.
pub(crate) struct Rest<'a> {
    data: &'a Path,
    time: Duration,
    process: u32,
    /// Who is counted.
    who: &'static str,
    /// Who holds them.
    holder: &'static str,
    measured: Vec<Measured>,
}

struct Measured {
    size: usize,
    statements: f64,
    resident_kib: f64,
}

impl<'a> Rest<'a> {
    /// Nothing was measured yet. `who` are held by the process `holder`, which listens at the URL `door`.
    pub(crate) fn of(
        stage: &'a Stage,
        measure: Measure,
        who: &'static str,
        holder: &'static str,
        door: &str,
    ) -> anyhow::Result<Self> {
        let process = process::behind(stage, door)?;
        Ok(Self {
            data: stage.target.folder(),
            time: measure.time.max(COUNTED),
            process,
            who,
            holder,
            measured: Vec::new(),
        })
    }

    /// Measures while there are so many.
    pub(crate) async fn measure(&mut self, size: usize) -> anyhow::Result<()> {
        tokio::time::sleep(TOLD).await;
        let statements = a_second(self.data, self.time).await?;
        self.measured.push(Measured { size, statements, resident_kib: process::resident_kib(self.process)? });
        Ok(())
    }

    /// Memory of the holder when it was measured last.
    pub(crate) fn resident_kib(&self) -> f64 {
        self.measured.last().map_or(f64::NAN, |measured| measured.resident_kib)
    }

    /// What came out. Each is to take `memory_kib` of the holder's memory at most.
    pub(crate) fn report(&self, memory_kib: f64) -> anyhow::Result<Report> {
        let [none, few, all] = &self.measured[..] else { anyhow::bail!("three measurements were to be made") };
        let Self { who, holder, .. } = self;
        let readings = self.measured.iter().flat_map(|Measured { size, statements, resident_kib }| {
            let statements = Reading {
                what: format!("statements of the database, {who}: {size}"),
                value: *statements,
                unit: "a second",
            };
            let resident = Reading {
                what: format!("resident memory of {holder}, {who}: {size}"),
                value: *resident_kib,
                unit: "KiB",
            };
            [statements, resident]
        });
        #[allow(clippy::cast_precision_loss, reason = "a handful of digits is shown")]
        let slope = (all.resident_kib - few.resident_kib) / (all.size - few.size) as f64;
        let more = few.statements.max(all.statements) - none.statements;
        let goals = vec![
            Goal::at_most(memory_kib, &format!("KiB of memory of {holder} for each"), *who, slope),
            Goal::at_most(STATEMENTS, "statements a second more than without", *who, more),
        ];
        Ok(Report { readings: readings.collect(), goals, ..Report::default() })
    }
}

/// Statements a second, of all roles, in the quietest window: one by itself is a transaction.
async fn a_second(data: &Path, time: Duration) -> anyhow::Result<f64> {
    let (began, mut least) = (Instant::now(), f64::INFINITY);
    while began.elapsed() < time {
        let (from, before) = (Instant::now(), transactions(data).await?);
        tokio::time::sleep(WINDOW).await;
        least = least.min((transactions(data).await? - before) / from.elapsed().as_secs_f64());
    }
    Ok(least)
}

async fn transactions(data: &Path) -> anyhow::Result<f64> {
    const QUERY: &str = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    Ok(postgres::ask(data, QUERY).await?.trim().parse()?)
}
