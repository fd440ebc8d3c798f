//! Lines for the sandbox's log, pushed to the bridge of the session.

use std::sync::Arc;
use std::time::Duration;

use roadstead_proto::api::v1::open_shell_client::OpenShellClient;
use roadstead_proto::api::v1::{PushSandboxLogsRequest, SandboxLogLine};
use tokio::sync::{Mutex, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::Channel;

use crate::calls::authorized;
use crate::token::Token;

/// Lines that wait for a session and for the bridge.
const QUEUE: usize = 2000;
/// Lines that a bridge takes of one batch.
const BATCH: usize = 100;
/// A stream without a line for so long is ended; the next line opens one.
const IDLE: Duration = Duration::from_secs(5);

/// Takes lines for the log of a supervisor's sandbox. Clones share the queue.
#[derive(Clone, Debug)]
pub struct Log(mpsc::Sender<SandboxLogLine>);

/// The lines that wait. Whoever has a session takes from them.
pub(crate) type Lines = Arc<Mutex<mpsc::Receiver<SandboxLogLine>>>;

/// A log, and what is put there.
pub(crate) fn queue() -> (Log, Lines) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (Log(sender), Arc::new(Mutex::new(receiver)))
}

impl Log {
    /// Has a line pushed, now or when there is a session. Never waits: false if the line is dropped, because too many
    /// wait. Lines on their way are lost with a connection.
    #[must_use]
    pub fn push(&self, line: SandboxLogLine) -> bool {
        self.0.try_send(line).is_ok()
    }

    /// As [`Log::push`], with what is said, how much it matters (`ERROR` to `TRACE`), and what says it.
    #[must_use]
    pub fn say(&self, level: &str, target: &str, message: impl Into<String>) -> bool {
        let (level, target, message) = (level.to_owned(), target.to_owned(), message.into());
        self.push(SandboxLogLine { level, target, message, event_time: Some(now().into()), ..Default::default() })
    }
}

/// Pushes what is put into the log. Ends with an error, or when nothing can be put there any more.
pub(crate) async fn push(mut api: OpenShellClient<Channel>, token: Token, lines: Lines) -> Result<(), Status> {
    let mut lines = lines.lock().await;
    let mut logs = Vec::with_capacity(BATCH);
    while lines.recv_many(&mut logs, BATCH).await > 0 {
        let (batches, stream) = mpsc::channel(1);
        let request = authorized(&token, ReceiverStream::new(stream))?;
        let feeding = async {
            loop {
                let sandbox_id = token.sandbox_id().to_string();
                let batch = PushSandboxLogsRequest { sandbox_id, logs: std::mem::take(&mut logs) };
                if batches.send(batch).await.is_err() {
                    break;
                }
                match tokio::time::timeout(IDLE, lines.recv_many(&mut logs, BATCH)).await {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => break,
                }
            }
            drop(batches);
        };
        let mut calling = std::pin::pin!(api.push_sandbox_logs(request));
        tokio::select! {
            ended = &mut calling => ended.map(drop)?,
            () = feeding => calling.await.map(drop)?,
        }
    }
    Ok(())
}

#[allow(clippy::disallowed_methods, reason = "a line's time is that of the wall clock")]
fn now() -> std::time::SystemTime {
    std::time::SystemTime::now()
}
