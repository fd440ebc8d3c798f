//! A watch that is open from the creation of a sandbox to its end, and what it has shown.

use std::time::Duration;

use anyhow::{Context as _, bail};
use roadstead_proto::api::v1::{self, SandboxPhase, sandbox_stream_event::Payload};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::client::connect::Client;
use crate::client::scope;

/// What a stream has shown so far, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) shown: Vec<(u64, SandboxPhase)>,
    /// The stream has ended, as it does when the sandbox is gone.
    pub(crate) ended: bool,
}

/// An open watch.
#[derive(Debug)]
pub(crate) struct Watched {
    seen: watch::Receiver<Seen>,
    task: JoinHandle<Result<(), tonic::Status>>,
}

impl Watched {
    pub(crate) async fn open(mut client: Client, workspace: &str, sandbox: &str) -> anyhow::Result<Self> {
        let request = v1::WatchSandboxRequest {
            workspace_scope: scope(workspace),
            sandbox: sandbox.to_owned(),
            follow_status: true,
            ..Default::default()
        };
        let mut events = client.watch_sandbox(request).await?.into_inner();
        let (sender, seen) = watch::channel(Seen::default());
        let task = tokio::spawn(async move {
            while let Some(event) = events.message().await? {
                if let Some(Payload::Sandbox(sandbox)) = event.payload {
                    let version = sandbox.metadata.map_or(0, |metadata| metadata.resource_version);
                    let phase = sandbox.status.map_or(SandboxPhase::Unspecified, |status| status.phase());
                    sender.send_modify(|seen| seen.shown.push((version, phase)));
                }
            }
            sender.send_modify(|seen| seen.ended = true);
            Ok(())
        });
        Ok(Self { seen, task })
    }

    /// Waits until the stream has shown what `wanted` looks for.
    pub(crate) async fn until(&mut self, within: Duration, wanted: impl Fn(&Seen) -> bool) -> anyhow::Result<Seen> {
        let waited = tokio::time::timeout(within, self.seen.wait_for(|seen| wanted(seen))).await;
        match waited.map(|seen| seen.map(|seen| seen.clone())) {
            Ok(Ok(seen)) => Ok(seen),
            Ok(Err(_)) => bail!("the watch broke: {:?}", (&mut self.task).await?.err()),
            Err(_) => bail!("the watch has shown only {:?}", self.seen.borrow().shown),
        }
    }

    /// Whether versions have only risen.
    pub(crate) fn check_order(seen: &Seen) -> anyhow::Result<()> {
        let mut pairs = seen.shown.windows(2);
        pairs
            .all(|pair| pair[0].0 < pair[1].0)
            .then_some(())
            .with_context(|| format!("versions did not only rise: {:?}", seen.shown))
    }
}
