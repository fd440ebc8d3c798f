//! Watches: from the answer of a commit to the event on another edge.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use roadstead_proto::api::datamodel::{ObjectMeta, Provider};
use roadstead_proto::api::v1;

use super::figure::{Figure, Goal, Report};
use super::measure::{Measure, Ran};
use super::path;
use super::stage::{Stage, WORKSPACE};
use crate::client::connect::Client;
use crate::client::scope;
use crate::demo::watched::Watched;

const PATIENCE: Duration = Duration::from_secs(30);
/// The sandbox that is watched.
const AT: usize = 1;
const PROVIDER: &str = "bench";

/// A setting does not change the sandbox that a watch shows; attaching a provider does.
pub(crate) async fn measure(stage: &Stage, measure: Measure) -> anyhow::Result<Report> {
    let (writer, watcher) = (stage.busy.first().context("no edge runs")?, stage.busy.last().context("no edge runs")?);
    let mut client = writer.clone();
    create_provider(&mut client).await?;
    let mut watched = Watched::open(watcher.clone(), WORKSPACE, &path::sandbox(AT)).await?;

    let (began, mut took, mut attached) = (Instant::now(), Vec::new(), false);
    while began.elapsed() < measure.time {
        attached = !attached;
        let version = change(&mut client, attached).await?;
        let answered = Instant::now();
        watched.until(PATIENCE, |seen| seen.shown.last().is_some_and(|(shown, _)| *shown >= version)).await?;
        took.push(answered.elapsed());
    }
    let ran = Ran { took, time: began.elapsed(), errors: BTreeMap::new() };
    let shown = Figure::of("commit answered to watcher on another edge", 1, ran);
    let goals = vec![
        Goal::at_most(5.0, "ms at p50", shown.what, shown.p50_ms),
        Goal::at_most(50.0, "ms at p99", shown.what, shown.p99_ms),
    ];
    Ok(Report { figures: vec![shown], goals })
}

async fn create_provider(client: &mut Client) -> anyhow::Result<()> {
    let provider = Provider {
        metadata: Some(ObjectMeta { name: PROVIDER.to_owned(), ..Default::default() }),
        r#type: "generic".to_owned(),
        credentials: [("BENCH_TOKEN".to_owned(), "value".to_owned())].into(),
        ..Default::default()
    };
    let create =
        v1::CreateProviderRequest { workspace_scope: scope(WORKSPACE), provider: Some(provider), ..Default::default() };
    client.create_provider(create).await?;
    Ok(())
}

/// Attaches or detaches it; the version of the sandbox after that.
async fn change(client: &mut Client, attach: bool) -> anyhow::Result<u64> {
    let (workspace_scope, sandbox, provider) = (scope(WORKSPACE), path::sandbox(AT), PROVIDER.to_owned());
    let sandbox = if attach {
        let request = v1::AttachSandboxProviderRequest { workspace_scope, sandbox, provider, ..Default::default() };
        client.attach_sandbox_provider(request).await?.into_inner().sandbox
    } else {
        let request = v1::DetachSandboxProviderRequest { workspace_scope, sandbox, provider, ..Default::default() };
        client.detach_sandbox_provider(request).await?.into_inner().sandbox
    };
    Ok(sandbox.and_then(|sandbox| sandbox.metadata).map_or(0, |metadata| metadata.resource_version))
}
