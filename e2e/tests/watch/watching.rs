//! An open stream, read as fast as it comes.

use std::time::{Duration, SystemTime};

use roadstead_e2e::api::Client;
use roadstead_proto::api::v1::sandbox_stream_event::Payload;
use roadstead_proto::api::v1::{SandboxPhase, SandboxStreamEvent, WatchSandboxRequest};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Code, Status, Streaming};

/// A state that was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) id: String,
    pub(crate) version: u64,
    pub(crate) phase: SandboxPhase,
    pub(crate) at: SystemTime,
}

/// What a stream has shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) states: Vec<State>,
    /// Numbers of lines, with their cursors.
    pub(crate) lines: Vec<(u32, String)>,
    /// When it ended, and with which code.
    pub(crate) ended: Option<(SystemTime, Code)>,
}

/// An open stream. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Watching {
    seen: watch::Receiver<Seen>,
    _reading: AbortOnDropHandle<()>,
}

impl Watching {
    pub(crate) async fn open(mut edge: Client, request: WatchSandboxRequest) -> Result<Self, Status> {
        let events = edge.watch_sandbox(request).await?.into_inner();
        let (sender, seen) = watch::channel(Seen::default());
        Ok(Self { seen, _reading: AbortOnDropHandle::new(tokio::spawn(read(events, sender))) })
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }

    /// Waits until it has shown what `wanted` looks for.
    pub(crate) async fn until(&self, within: Duration, what: &str, wanted: impl Fn(&Seen) -> bool) -> Seen {
        let mut seen = self.seen.clone();
        match tokio::time::timeout(within, seen.wait_for(|seen| wanted(seen))).await {
            Ok(Ok(seen)) => seen.clone(),
            _ => panic!("not within {within:?}: the stream shows {what}; it has shown {:?}", self.seen()),
        }
    }

    /// Waits until it has shown this version, or a newer one.
    pub(crate) async fn until_version(&self, within: Duration, version: u64) -> Seen {
        self.until(within, &format!("version {version}"), |seen| seen.version() >= version).await
    }

    /// Waits until it has ended, in order.
    pub(crate) async fn until_end(&self, within: Duration) -> Seen {
        let seen = self.until(within, "its end", |seen| seen.ended.is_some()).await;
        assert_eq!(seen.ended.map(|(_, code)| code), Some(Code::Ok), "{seen:?}");
        seen
    }
}

impl Seen {
    /// The newest version that was shown, or 0.
    pub(crate) fn version(&self) -> u64 {
        self.states.last().map_or(0, |state| state.version)
    }

    /// The phases that were shown, in order.
    pub(crate) fn phases(&self) -> Vec<SandboxPhase> {
        self.states.iter().map(|state| state.phase).collect()
    }

    /// Takes note of an event.
    ///
    /// # Panics
    /// It is none that a stream may show here: versions of one sandbox, which rise, and then, with cursors, numbered
    /// lines and events.
    pub(crate) fn take(&mut self, event: SandboxStreamEvent) {
        let SandboxStreamEvent { payload, cursor } = event;
        match payload.unwrap() {
            Payload::Sandbox(sandbox) => {
                assert_eq!(cursor, "", "a state has no cursor");
                let metadata = sandbox.metadata.unwrap();
                let (id, version, phase) = (metadata.id, metadata.resource_version, sandbox.status.unwrap().phase());
                if let Some(last) = self.states.last() {
                    assert!(version > last.version && id == last.id, "{id} {version} after {last:?}");
                }
                self.states.push(State { id, version, phase, at: SystemTime::now() });
            }
            Payload::Log(line) => {
                assert!(!self.states.is_empty(), "a state comes first");
                assert_eq!(line.sandbox_id, self.states[0].id);
                self.lines.push((line.message.parse().unwrap(), cursor));
            }
            Payload::Event(_) => assert!(!self.states.is_empty() && !cursor.is_empty()),
            other => panic!("{other:?}"),
        }
    }
}

async fn read(mut events: Streaming<SandboxStreamEvent>, seen: watch::Sender<Seen>) {
    let code = loop {
        match events.message().await {
            Ok(Some(event)) => seen.send_modify(|seen| seen.take(event)),
            Ok(None) => break Code::Ok,
            Err(status) => break status.code(),
        }
    };
    seen.send_modify(|seen| seen.ended = Some((SystemTime::now(), code)));
}
