//! What watches cost to whom nothing happens: memory of the edge, statements of the database.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::crowd::Crowd;
use crate::all::run_file::RunFile;
use crate::bench::figure::{Goal, Reading, Report};
use crate::bench::measure::Measure;
use crate::bench::stage::Stage;
use crate::demo::postgres;

/// Memory of the edge for one more watcher, in KiB.
const MEMORY_KIB: f64 = 20.0;
/// Statements a second that any number of watchers may cause together. None is meant; what is counted comes in lumps.
const STATEMENTS: f64 = 3.0;
/// Likewise over all the time that is counted: a role's look after all that it holds may fall into one count and not into
/// another. One statement a minute for each of the watchers would be many times as much.
const STATEMENTS_IN_ALL: f64 = 20.0;
/// A backend of Postgres that rests tells what it has done at most this long after.
const TOLD: Duration = Duration::from_secs(11);
/// Statements are counted for at least so long. The quietest window tells more finely than all of it: now and then a role
/// looks after all that it holds, some twenty sandboxes a second, whoever watches.
const COUNTED: Duration = Duration::from_secs(60);
const WINDOW: Duration = Duration::from_secs(5);

/// Statements a second.
#[derive(Clone, Copy)]
struct Statements {
    quietest: f64,
    mean: f64,
}

pub(crate) async fn measure(
    stage: &Stage,
    measure: Measure,
    crowd: &mut Crowd,
    watchers: usize,
) -> anyhow::Result<Report> {
    let data = stage.target.folder();
    let edge = last_edge(stage)?;
    let (mut report, mut statements, mut resident) = (Report::default(), Vec::new(), Vec::new());
    for size in [0, watchers / 10, watchers] {
        crowd.grow(size).await?;
        tokio::time::sleep(TOLD).await;
        let (counted, kib) = (count(data, measure.time.max(COUNTED)).await?, resident_kib(edge)?);
        let reading = |what: &str, value, unit| Reading { what: format!("{what}, idle watchers: {size}"), value, unit };
        report.readings.extend([
            reading("statements of the database", counted.mean, "a second"),
            reading("statements of the database at its quietest", counted.quietest, "a second"),
            reading("resident memory of the edge", kib, "KiB"),
        ]);
        statements.push(counted);
        resident.push(kib);
    }
    let [none, few, many] = statements[..] else { anyhow::bail!("three measurements were to be made") };
    #[allow(clippy::cast_precision_loss, reason = "a handful of digits is shown")]
    let slope = (resident[2] - resident[1]) / (watchers - watchers / 10) as f64;
    report.goals = vec![
        Goal::at_most(MEMORY_KIB, "KiB of the edge's memory for each", "idle watchers", slope),
        Goal::at_most(
            STATEMENTS,
            "statements a second more than without, at the quietest",
            "idle watchers",
            few.quietest.max(many.quietest) - none.quietest,
        ),
        Goal::at_most(
            STATEMENTS_IN_ALL,
            "statements a second more than without, in all",
            "idle watchers",
            few.mean.max(many.mean) - none.mean,
        ),
    ];
    Ok(report)
}

/// The process at which the crowd watches.
fn last_edge(stage: &Stage) -> anyhow::Result<u32> {
    let url = stage.doors.edges.last().context("no edge runs")?;
    let replicas = RunFile::load(stage.target.folder())?.replicas;
    let edge = replicas.iter().find(|replica| replica.listen.is_some_and(|at| format!("http://{at}") == *url));
    edge.and_then(|edge| edge.pid).context("the edge is no process")
}

fn resident_kib(process: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).context("memory is told by Linux only")?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no memory is told")?;
    Ok(resident.trim().trim_end_matches(" kB").parse()?)
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
