//! Configuration: reads of it, and its way from the answer of a commit to the supervisor.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use roadstead_proto::api::v1::SandboxPhase;
use roadstead_supervisor::{Observation, Recorder, Settings, Supervisor, TokenSource};

use super::figure::{Figure, Goal, Report};
use super::measure::{Measure, Ran};
use super::path::{self, Load};
use super::stage::{Stage, WORKSPACE};
use crate::demo::watched::Watched;

const PATIENCE: Duration = Duration::from_secs(30);
/// The sandbox that is supervised.
const AT: usize = 0;
const READERS: usize = 16;

pub(crate) async fn measure(stage: &Stage, measure: Measure) -> anyhow::Result<Report> {
    let read = measure.run("GetSandboxConfig", READERS, |at| path::read_config(stage, at)).await?;
    let pushed = to_supervisor(stage, measure.time).await?;
    let goals = vec![
        Goal::at_least(2000.0, "a second", read.what, read.per_second),
        Goal::at_most(10.0, "ms at p50", pushed.what, pushed.p50_ms),
        Goal::at_most(100.0, "ms at p99", pushed.what, pushed.p99_ms),
    ];
    Ok(Report { figures: vec![read, pushed], goals, ..Report::default() })
}

async fn to_supervisor(stage: &Stage, time: Duration) -> anyhow::Result<Figure> {
    let sandbox = path::sandbox(AT);
    let recorder = Recorder::new(1000);
    let token = TokenSource::File(stage.target.token(WORKSPACE, &sandbox).await?);
    let supervisor = Supervisor::start(Settings {
        observer: Some(recorder.observer()),
        ..Settings::new(&stage.doors.bridge, WORKSPACE, &sandbox, token)
    })?;
    let mut watched = Watched::open(stage.users[AT].clone(), WORKSPACE, &sandbox).await?;
    let ready = |phase| phase == SandboxPhase::Ready;
    watched
        .until(PATIENCE, |seen| seen.shown.last().is_some_and(|(_, phase)| ready(*phase)))
        .await
        .context("the sandbox did not become ready")?;

    let (began, mut took) = (Instant::now(), Vec::new());
    let mut mutate = path::mutate(stage, Load::apart(false), AT);
    while began.elapsed() < time {
        let wanted = mutate.change().await?;
        let answered = Instant::now();
        let arrived = recorder.wait_for(PATIENCE, |seen| {
            let newest = seen.iter().rev().find_map(update);
            newest.filter(|(_, revision)| *revision >= wanted).map(|(at, _)| at)
        });
        took.push(arrived.await.context("the update did not arrive")?.saturating_duration_since(answered));
    }
    let ran = Ran { took, time: began.elapsed(), errors: BTreeMap::new() };
    supervisor.stop().await;
    Ok(Figure::of("commit answered to supervisor has it", 1, ran))
}

/// When a configuration arrived, and the revision of its settings.
fn update(observation: &Observation) -> Option<(Instant, u64)> {
    match observation {
        Observation::Received(frame) => Some((frame.at, frame.config.as_ref()?.settings_revision)),
        _ => None,
    }
}
