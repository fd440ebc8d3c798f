//! An open watch, and the newest that it has shown.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use roadstead_proto::api::v1::{SandboxStreamEvent, WatchSandboxRequest, sandbox_stream_event::Payload};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::bench::stage::WORKSPACE;
use crate::client::connect::Client;
use crate::client::scope;

/// The newest of each kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// Version of the sandbox.
    pub(crate) version: u64,
    /// Number in the newest line of its log.
    pub(crate) line: u64,
    /// When the last of them came.
    pub(crate) at: Instant,
}

/// An open watch. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Watcher {
    shown: watch::Receiver<Shown>,
    _task: AbortOnDropHandle<()>,
}

impl Watcher {
    /// Opens it, and waits until it has shown the sandbox.
    pub(crate) async fn open(mut client: Client, sandbox: String, follow_logs: bool) -> anyhow::Result<Self> {
        let request = WatchSandboxRequest {
            workspace_scope: scope(WORKSPACE),
            sandbox,
            follow_status: true,
            follow_logs,
            ..Default::default()
        };
        let mut events = client.watch_sandbox(request).await?.into_inner();
        let first = events.message().await?.context("the watch ended before it showed anything")?;
        let (sender, shown) = watch::channel(Shown { version: 0, line: 0, at: Instant::now() }.after(first));
        let task = tokio::spawn(async move {
            loop {
                match events.message().await {
                    Ok(Some(event)) => sender.send_modify(|shown| *shown = shown.after(event)),
                    Ok(None) => return,
                    Err(status) => {
                        tracing::warn!(code = ?status.code(), reason = status.message(), "a watch broke");
                        return;
                    }
                }
            }
        });
        Ok(Self { shown, _task: AbortOnDropHandle::new(task) })
    }

    /// The newest so far.
    pub(crate) fn newest(&self) -> Shown {
        *self.shown.borrow()
    }

    /// Waits until it has shown what is wanted; none if that takes too long.
    pub(crate) async fn until(
        &mut self,
        within: Duration,
        wanted: impl FnMut(&Shown) -> bool,
    ) -> anyhow::Result<Option<Shown>> {
        match tokio::time::timeout(within, self.shown.wait_for(wanted)).await {
            Ok(Ok(shown)) => Ok(Some(*shown)),
            Ok(Err(_)) => bail!("a watch has ended"),
            Err(_) => Ok(None),
        }
    }
}

impl Shown {
    fn after(mut self, event: SandboxStreamEvent) -> Self {
        match event.payload {
            Some(Payload::Sandbox(sandbox)) => {
                self.version = sandbox.metadata.map_or(self.version, |metadata| metadata.resource_version);
            }
            // What is no number is the gateway's own word.
            Some(Payload::Log(log)) => self.line = log.message.parse().unwrap_or(self.line),
            _ => return self,
        }
        Self { at: Instant::now(), ..self }
    }
}
