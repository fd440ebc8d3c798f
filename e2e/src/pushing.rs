//! A sandbox's log, as its writer pushes it.

use std::time::Duration;

use roadstead_proto::api::v1::{PushSandboxLogsRequest, SandboxLogLine};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status};

use crate::api::client;

/// Longest wait for the answer of a bridge that was sent all lines.
const PATIENCE: Duration = Duration::from_secs(30);

/// A stream of lines to a bridge, whose messages are numbers.
#[derive(Debug)]
pub struct Pushing {
    sandbox_id: String,
    batches: mpsc::Sender<PushSandboxLogsRequest>,
    call: JoinHandle<Result<(), Status>>,
}

impl Pushing {
    /// Opens a stream to a bridge, with the sandbox's token.
    #[must_use]
    pub fn open(bridge: &str, token: &str, sandbox_id: &str) -> Self {
        let (batches, receiver) = mpsc::channel(1);
        let mut request = Request::new(ReceiverStream::new(receiver));
        request.metadata_mut().insert("authorization", format!("Bearer {}", token.trim()).parse().unwrap());
        let mut api = client(bridge);
        let call = tokio::spawn(async move { api.push_sandbox_logs(request).await.map(drop) });
        Self { sandbox_id: sandbox_id.to_owned(), batches, call }
    }

    /// Pushes lines with these numbers.
    pub async fn batch(&self, numbers: impl Iterator<Item = u32>) {
        let line = |number: u32| SandboxLogLine {
            level: "INFO".to_owned(),
            target: "test".to_owned(),
            message: number.to_string(),
            ..Default::default()
        };
        let request = PushSandboxLogsRequest { sandbox_id: self.sandbox_id.clone(), logs: numbers.map(line).collect() };
        assert!(self.batches.send(request).await.is_ok(), "the bridge takes lines");
    }

    /// Ends the stream; all is stored when it has ended.
    ///
    /// # Errors
    /// The bridge's status.
    pub async fn end(self) -> Result<(), Status> {
        drop(self.batches);
        tokio::time::timeout(PATIENCE, self.call).await.unwrap().unwrap()
    }
}
