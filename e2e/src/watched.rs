//! A client that watches a sandbox, and opens its stream again whenever that breaks.

use std::time::Duration;

use roadstead_proto::api::v1::{SandboxPhase, WatchSandboxRequest, sandbox_stream_event::Payload};
use tokio::{sync::watch, task::JoinHandle, time::Instant};
use tonic::{Extensions, Request, Status, metadata::MetadataMap};

use crate::api::{Client, client, scope};

/// Pause before a broken stream is opened again.
const PAUSE: Duration = Duration::from_millis(50);

/// A state that was shown: its version, its phase.
pub type Shown = (u64, SandboxPhase);

/// What one stream has shown, in order.
#[derive(Debug, Clone, Default)]
pub struct Stream {
    pub shown: Vec<Shown>,
    /// How it ended: an empty text if it did in order.
    pub ended: Option<String>,
}

/// What a client has seen, stream after stream.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub streams: Vec<Stream>,
}

impl Seen {
    /// The newest state of the stream that is open.
    #[must_use]
    pub fn current(&self) -> Option<Shown> {
        let open = self.streams.last().filter(|stream| stream.ended.is_none())?;
        open.shown.last().copied()
    }

    /// All that was shown.
    pub fn shown(&self) -> impl Iterator<Item = Shown> + '_ {
        self.streams.iter().flat_map(|stream| stream.shown.iter().copied())
    }

    /// Whether any state of this phase was shown.
    #[must_use]
    pub fn has_shown(&self, phase: SandboxPhase) -> bool {
        self.shown().any(|(_, shown)| shown == phase)
    }

    /// Whether the last stream ended in order, as it does when the sandbox is gone.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.streams.last().is_some_and(|stream| stream.ended.as_deref() == Some(""))
    }

    /// How often a stream broke.
    #[must_use]
    pub fn breaks(&self) -> usize {
        self.streams.iter().filter(|stream| stream.ended.as_ref().is_some_and(|how| !how.is_empty())).count()
    }

    /// What is wrong with the order: within a stream versions rise, and a new stream does not go back.
    #[must_use]
    pub fn disorder(&self) -> Option<String> {
        let mut newest = 0;
        for (number, stream) in self.streams.iter().enumerate() {
            for (place, (version, _)) in stream.shown.iter().enumerate() {
                let may_repeat = place == 0 && number > 0;
                if *version < newest || (*version == newest && !may_repeat) {
                    return Some(format!("stream {number} shows version {version} after {newest}"));
                }
                newest = *version;
            }
        }
        None
    }
}

/// An open watch. It ends when it is dropped.
#[derive(Debug)]
pub struct Watched {
    seen: watch::Receiver<Seen>,
    task: JoinHandle<()>,
}

impl Watched {
    /// Watches through the first of `edges`; after a break through the next, round and round.
    #[must_use]
    pub fn open(edges: &[String], workspace: &str, sandbox: &str) -> Self {
        Self::open_with(edges, workspace, sandbox, &MetadataMap::new())
    }

    /// As [`Watched::open`], with this in the head of each call: a credential.
    #[must_use]
    pub fn open_with(edges: &[String], workspace: &str, sandbox: &str, head: &MetadataMap) -> Self {
        let head = head.clone();
        let (sender, seen) = watch::channel(Seen::default());
        let request = WatchSandboxRequest {
            workspace_scope: scope(workspace),
            sandbox: sandbox.to_owned(),
            follow_status: true,
            ..Default::default()
        };
        let clients: Vec<Client> = edges.iter().map(|edge| client(edge)).collect();
        let task = tokio::spawn(async move {
            for client in clients.iter().cycle() {
                sender.send_modify(|seen| seen.streams.push(Stream::default()));
                let request = Request::from_parts(head.clone(), Extensions::default(), request.clone());
                let ended = follow(client.clone(), request, &sender).await;
                let how = ended.as_ref().map_or_else(ToString::to_string, |()| String::new());
                sender.send_modify(|seen| seen.streams.last_mut().unwrap().ended = Some(how));
                if ended.is_ok() {
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self { seen, task }
    }

    /// What it has seen so far.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }

    /// Waits until it has seen what `wanted` looks for.
    ///
    /// # Panics
    /// Not within `within`.
    pub async fn until(&self, within: Duration, what: &str, wanted: impl Fn(&Seen) -> bool) -> Seen {
        let deadline = Instant::now() + within;
        let mut seen = self.seen.clone();
        let waited = tokio::time::timeout_at(deadline, seen.wait_for(|seen| wanted(seen))).await;
        match waited {
            Ok(Ok(seen)) => seen.clone(),
            _ => panic!("not within {within:?}: the watch shows {what}; it has shown {:?}", self.seen()),
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(
    mut client: Client,
    request: Request<WatchSandboxRequest>,
    seen: &watch::Sender<Seen>,
) -> Result<(), Status> {
    let mut events = client.watch_sandbox(request).await?.into_inner();
    while let Some(event) = events.message().await? {
        let Some(Payload::Sandbox(sandbox)) = event.payload else { continue };
        let version = sandbox.metadata.map_or(0, |metadata| metadata.resource_version);
        let phase = sandbox.status.map_or(SandboxPhase::Unspecified, |status| status.phase());
        seen.send_modify(|seen| seen.streams.last_mut().unwrap().shown.push((version, phase)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(streams: &[&[u64]]) -> Seen {
        let stream = |versions: &&[u64]| Stream {
            shown: versions.iter().map(|version| (*version, SandboxPhase::Ready)).collect(),
            ended: None,
        };
        Seen { streams: streams.iter().map(stream).collect() }
    }

    #[test]
    fn versions_rise_within_a_stream_and_do_not_go_back_in_the_next() {
        assert_eq!(seen(&[&[1, 2, 5], &[5, 6]]).disorder(), None);
        assert!(seen(&[&[1, 2, 2]]).disorder().is_some());
        assert!(seen(&[&[1, 3, 2]]).disorder().is_some());
        assert!(seen(&[&[1, 3], &[2]]).disorder().is_some());
    }

    #[test]
    fn a_stream_that_ended_shows_nothing_current() {
        let mut seen = seen(&[&[1]]);
        assert!(seen.current().is_some());
        seen.streams[0].ended = Some("broken".to_owned());
        assert_eq!((seen.current(), seen.breaks(), seen.is_over()), (None, 1, false));
        seen.streams[0].ended = Some(String::new());
        assert_eq!((seen.breaks(), seen.is_over()), (0, true));
    }
}
