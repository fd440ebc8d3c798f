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
/// A backend of Postgres that rests tells what it has done at most this long after.
const TOLD: Duration = Duration::from_secs(11);
/// Statements are counted for at least so long, and the quietest window tells: now and then a role looks after all that
/// it holds, some twenty sandboxes a second, whoever watches.
const COUNTED: Duration = Duration::from_secs(60);
const WINDOW: Duration = Duration::from_secs(5);

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
        statements.push(a_second(data, measure.time.max(COUNTED)).await?);
        resident.push(resident_kib(edge)?);
        let reading = |what: &str, value: Option<&f64>, unit| Reading {
            what: format!("{what}, idle watchers: {size}"),
            value: value.copied().unwrap_or(f64::NAN),
            unit,
        };
        report.readings.extend([
            reading("statements of the database", statements.last(), "a second"),
            reading("resident memory of the edge", resident.last(), "KiB"),
        ]);
    }
    let [none, few, many] = statements[..] else { anyhow::bail!("three measurements were to be made") };
    #[allow(clippy::cast_precision_loss, reason = "a handful of digits is shown")]
    let slope = (resident[2] - resident[1]) / (watchers - watchers / 10) as f64;
    report.goals = vec![
        Goal::at_most(MEMORY_KIB, "KiB of the edge's memory for each", "idle watchers", slope),
        Goal::at_most(STATEMENTS, "statements a second more than without", "idle watchers", few.max(many) - none),
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
