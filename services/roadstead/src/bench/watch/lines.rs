//! The log of one sandbox, pushed at the bridge: each line is a number.

use anyhow::Context as _;
use roadstead_proto::api::v1::{GetSandboxRequest, PushSandboxLogsRequest, SandboxLogLine};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;

use crate::bench::path;
use crate::bench::stage::{Stage, WORKSPACE};
use crate::client::connect::Connection;
use crate::client::scope;

/// An open stream of lines. It ends when it is dropped.
pub(crate) struct Lines {
    sandbox_id: String,
    /// Number of the last line.
    last: u64,
    batches: mpsc::Sender<PushSandboxLogsRequest>,
    _call: AbortOnDropHandle<()>,
}

impl Lines {
    /// As the sandbox of one caller.
    pub(crate) async fn of(stage: &Stage, at: usize) -> anyhow::Result<Self> {
        let name = path::sandbox(at);
        let token_file = Some(stage.target.token(WORKSPACE, &name).await?);
        let mut bridge = Connection { token_file, ..Connection::anonymous(&stage.doors.bridge) }.open_stream().await?;
        let request = GetSandboxRequest { workspace_scope: scope(WORKSPACE), name };
        let mut edge = stage.busy.first().context("no edge runs")?.clone();
        let sandbox = edge.get_sandbox(request).await?.into_inner().sandbox;
        let sandbox_id = sandbox.and_then(|sandbox| sandbox.metadata).context("the sandbox has no id")?.id;
        let (batches, receiver) = mpsc::channel(1);
        let call = tokio::spawn(async move {
            if let Err(status) = bridge.push_sandbox_logs(ReceiverStream::new(receiver)).await {
                tracing::warn!(code = ?status.code(), reason = status.message(), "a stream of lines broke");
            }
        });
        Ok(Self { sandbox_id, last: 0, batches, _call: AbortOnDropHandle::new(call) })
    }

    /// Pushes so many; the number of the last.
    pub(crate) async fn push(&mut self, count: u64) -> anyhow::Result<u64> {
        let numbers = self.last + 1..=self.last + count;
        self.last += count;
        let line = |number: u64| SandboxLogLine {
            level: "INFO".to_owned(),
            target: "bench".to_owned(),
            message: number.to_string(),
            ..Default::default()
        };
        let batch = PushSandboxLogsRequest { sandbox_id: self.sandbox_id.clone(), logs: numbers.map(line).collect() };
        self.batches.send(batch).await.context("the bridge takes no lines")?;
        Ok(self.last)
    }
}
