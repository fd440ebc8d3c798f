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
/// Likewise over all the time that is counted: a role's look after all that it holds may fall into one count and not into
/// another. One statement a minute for each of them would be many times as much.
const STATEMENTS_IN_ALL: f64 = 20.0;
/// Statements are counted for at least so long. The quietest window tells more finely than all of it: now and then a role
/// looks after all that it holds, some twenty sandboxes a second, whoever is there.
const COUNTED: Duration = Duration::from_secs(60);
const WINDOW: Duration = Duration::from_secs(5);

/// Statements a second.
#[derive(Clone, Copy)]
struct Statements {
    quietest: f64,
    mean: f64,
}

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
    statements: Statements,
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
        let statements = count(self.data, self.time).await?;
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
            let reading = |what: String, value, unit| Reading { what: format!("{what}, {who}: {size}"), value, unit };
            [
                reading("statements of the database".to_owned(), statements.mean, "a second"),
                reading("statements of the database at its quietest".to_owned(), statements.quietest, "a second"),
                reading(format!("resident memory of {holder}"), *resident_kib, "KiB"),
            ]
        });
        #[allow(clippy::cast_precision_loss, reason = "a handful of digits is shown")]
        let slope = (all.resident_kib - few.resident_kib) / (all.size - few.size) as f64;
        let more = |of: fn(Statements) -> f64| of(few.statements).max(of(all.statements)) - of(none.statements);
        let goals = vec![
            Goal::at_most(memory_kib, &format!("KiB of memory of {holder} for each"), *who, slope),
            Goal::at_most(
                STATEMENTS,
                "statements a second more than without, at the quietest",
                *who,
                more(|statements| statements.quietest),
            ),
            Goal::at_most(
                STATEMENTS_IN_ALL,
                "statements a second more than without, in all",
                *who,
                more(|statements| statements.mean),
            ),
        ];
        Ok(Report { readings: readings.collect(), goals, ..Report::default() })
    }
}

/// Counts the statements of all roles: one by itself is a transaction.
async fn count(data: &Path, time: Duration) -> anyhow::Result<Statements> {
    let mut quietest = f64::INFINITY;
    let (began, first) = (Instant::now(), transactions(data).await?);
    let (mut from, mut before) = (began, first);
    while began.elapsed() < time {
        tokio::time::sleep(WINDOW).await;
        let (now, after) = (Instant::now(), transactions(data).await?);
        quietest = quietest.min((after - before) / (now - from).as_secs_f64());
        (from, before) = (now, after);
    }
    Ok(Statements { quietest, mean: (before - first) / (from - began).as_secs_f64() })
}

async fn transactions(data: &Path) -> anyhow::Result<f64> {
    const QUERY: &str = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    Ok(postgres::ask(data, QUERY).await?.trim().parse()?)
}
