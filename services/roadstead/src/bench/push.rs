//! From the answer of a commit to a watcher on another edge, and to the supervisor.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use roadstead_proto::api::v1;
use roadstead_supervisor::{Observation, Recorder, Settings, Supervisor, TokenSource};

use super::measure::Figure;
use super::{WORKSPACE, path};
use crate::client::connect::Client;
use crate::client::scope;
use crate::demo::target::Target;
use crate::demo::watched::Watched;

const PATIENCE: Duration = Duration::from_secs(30);
/// The sandbox that is watched and supervised.
const AT: usize = 0;

pub(crate) async fn measure(
    target: &Target,
    bridge: &str,
    clients: &[Client],
    time: Duration,
) -> anyhow::Result<Vec<Figure>> {
    let sandbox = path::sandbox(AT);
    let recorder = Recorder::new(1000);
    let supervisor = Supervisor::start(Settings {
        observer: Some(recorder.observer()),
        ..Settings::new(bridge, WORKSPACE, &sandbox, TokenSource::File(target.token(WORKSPACE, &sandbox).await?))
    })?;
    let mut watched = Watched::open(clients[clients.len() - 1].clone(), WORKSPACE, &sandbox).await?;
    watched
        .until(PATIENCE, |seen| seen.shown.last().is_some_and(|(_, phase)| *phase == v1::SandboxPhase::Ready))
        .await
        .context("the sandbox did not become ready")?;
    let pushed = to_supervisor(&recorder, clients, time).await?;
    let shown = to_watcher(&mut watched, clients, time).await?;
    supervisor.stop().await;
    Ok(vec![pushed, shown])
}

async fn to_supervisor(recorder: &Recorder, clients: &[Client], time: Duration) -> anyhow::Result<Figure> {
    let (began, mut took) = (Instant::now(), Vec::new());
    let mut mutate = path::mutate(clients, AT, String::new());
    while began.elapsed() < time {
        let wanted = mutate.change().await?;
        let answered = Instant::now();
        let arrived = recorder.wait_for(PATIENCE, |seen| {
            let newest = seen.iter().rev().find_map(update);
            newest.filter(|(_, revision)| *revision >= wanted).map(|(at, _)| at)
        });
        took.push(arrived.await.context("the update did not arrive")?.saturating_duration_since(answered));
    }
    Ok(Figure::of("commit answered to supervisor has it", 1, took, began.elapsed()))
}

/// When a configuration arrived, and the revision of its settings.
fn update(observation: &Observation) -> Option<(Instant, u64)> {
    match observation {
        Observation::Received(frame) => Some((frame.at, frame.config.as_ref()?.settings_revision)),
        _ => None,
    }
}

/// A setting does not change the sandbox that a watch shows; attaching a provider does.
async fn to_watcher(watched: &mut Watched, clients: &[Client], time: Duration) -> anyhow::Result<Figure> {
    let mut client = clients[0].clone();
    let provider = roadstead_proto::api::datamodel::Provider {
        metadata: Some(roadstead_proto::api::datamodel::ObjectMeta { name: "bench".to_owned(), ..Default::default() }),
        r#type: "generic".to_owned(),
        credentials: [("BENCH_TOKEN".to_owned(), "value".to_owned())].into(),
        ..Default::default()
    };
    let create =
        v1::CreateProviderRequest { workspace_scope: scope(WORKSPACE), provider: Some(provider), ..Default::default() };
    client.create_provider(create).await?;
    let (began, mut took, mut attached) = (Instant::now(), Vec::new(), false);
    while began.elapsed() < time {
        let sandbox = if attached {
            let request = v1::DetachSandboxProviderRequest {
                workspace_scope: scope(WORKSPACE),
                sandbox: path::sandbox(AT),
                provider: "bench".to_owned(),
                ..Default::default()
            };
            client.detach_sandbox_provider(request).await?.into_inner().sandbox
        } else {
            let request = v1::AttachSandboxProviderRequest {
                workspace_scope: scope(WORKSPACE),
                sandbox: path::sandbox(AT),
                provider: "bench".to_owned(),
                ..Default::default()
            };
            client.attach_sandbox_provider(request).await?.into_inner().sandbox
        };
        let answered = Instant::now();
        attached = !attached;
        let version = sandbox.and_then(|sandbox| sandbox.metadata).map_or(0, |metadata| metadata.resource_version);
        watched.until(PATIENCE, |seen| seen.shown.last().is_some_and(|(shown, _)| *shown >= version)).await?;
        took.push(answered.elapsed());
    }
    Ok(Figure::of("commit answered to watcher on another edge", 1, took, began.elapsed()))
}
