//! Many who watch the same sandboxes at one edge, each as a member of their workspace.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use roadstead_proto::api::v1::SandboxSpec;

use super::watcher::Watcher;
use crate::bench::stage::{Stage, WORKSPACE};
use crate::client::connect::{Client, Connection};

/// Streams on one connection.
const STREAMS: usize = 100;
/// Calls on their way at a time.
const AT_A_TIME: usize = 32;
const PATIENCE: Duration = Duration::from_secs(60);

/// Open watches, and room for more.
pub(crate) struct Crowd {
    /// Connections to the edge at which they watch, which is the last one.
    connections: Vec<Client>,
    member: Connection,
    sandboxes: usize,
    watchers: Vec<Watcher>,
}

impl Crowd {
    /// Creates so many sandboxes. Nobody watches them yet.
    pub(crate) async fn of(stage: &Stage, sandboxes: u32) -> anyhow::Result<Self> {
        let creating = (0..sandboxes as usize).map(|at| stage.create_sandbox(at, sandbox(at), SandboxSpec::default()));
        stream::iter(creating).buffer_unordered(AT_A_TIME).try_collect::<()>().await?;
        let edge = stage.doors.edges.last().context("no edge runs")?;
        let member = Connection { token_file: Some(stage.member.clone()), ..Connection::anonymous(edge) };
        Ok(Self { connections: Vec::new(), member, sandboxes: sandboxes as usize, watchers: Vec::new() })
    }

    /// Opens more watches, until there are so many; each has shown its sandbox.
    pub(crate) async fn grow(&mut self, to: usize) -> anyhow::Result<()> {
        while self.connections.len() * STREAMS < to {
            self.connections.push(self.member.open_stream().await?);
        }
        let (connections, sandboxes) = (&self.connections, self.sandboxes);
        let opening = (self.watchers.len()..to)
            .map(|at| Watcher::open(connections[at / STREAMS].clone(), sandbox(at % sandboxes), false));
        let opened: Vec<_> = stream::iter(opening).buffer_unordered(AT_A_TIME).try_collect().await?;
        self.watchers.extend(opened);
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.watchers.len()
    }

    /// The version that each has shown.
    pub(crate) fn versions(&self) -> Vec<u64> {
        self.watchers.iter().map(|watcher| watcher.newest().version).collect()
    }

    /// Waits until each has shown a newer version than it had; when the last one did.
    pub(crate) async fn newer_than(&mut self, versions: &[u64]) -> anyhow::Result<Instant> {
        let mut last = Instant::now();
        for (watcher, before) in self.watchers.iter_mut().zip(versions) {
            let shown = watcher.until(PATIENCE, |shown| shown.version > *before).await?;
            last = last.max(shown.context("a watch shows nothing newer")?.at);
        }
        Ok(last)
    }

    /// A condition of SQL that its sandboxes fulfil.
    pub(crate) fn is_of_it() -> String {
        format!("workspace_name = '{WORKSPACE}' AND name LIKE 'crowd-%'")
    }
}

fn sandbox(number: usize) -> String {
    format!("crowd-{number}")
}
