//! One session, from its registration to its end.

mod begin;
mod follow;
mod hear;
mod stored;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use roadstead_bus::feed::KeyFollower;
use roadstead_proto::api::v1::{SupervisorHello, SupervisorMessage};
use roadstead_proto::internal::SandboxIdentity;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tonic::{Status, Streaming};
use uuid::Uuid;

use crate::bridge::Bridge;
use crate::end::End;
use crate::entries::Reread;
use crate::outbox::{Messages, Outbox};
use crate::reporter::Reporter;
use crate::sessions::Place;
use crate::slots::Entry;

/// Heartbeats of the supervisor that may be missing.
const MISSING_HEARTBEATS: u32 = 3;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A session that said its hello.
pub(crate) struct Opened {
    pub(crate) bridge: Arc<Bridge>,
    pub(crate) identity: Arc<SandboxIdentity>,
    pub(crate) sandbox_id: Uuid,
    pub(crate) token_expires: SystemTime,
    pub(crate) hello: SupervisorHello,
    pub(crate) inbound: Streaming<SupervisorMessage>,
    /// Told when it is accepted, or why it is not.
    pub(crate) established: oneshot::Sender<Result<Messages, Status>>,
    pub(crate) traceparent: String,
}

/// Has the session, and gives up its place when admission has heard all of it.
pub(crate) fn run(opened: Opened, place: OwnedSemaphorePermit) -> impl Future<Output = ()> + Send {
    let bridge = Arc::clone(&opened.bridge);
    let reporter = Reporter::new(Uuid::new_v4(), &opened.identity);
    let reporting = Arc::clone(&reporter).run(Arc::clone(&bridge));
    // Boxed, so that it is gone while reports are still owed.
    let session = Box::pin(have(opened, reporter));
    async move {
        let waiting = bridge.metrics.reporting.clone();
        let session = async {
            session.await;
            waiting.inc();
        };
        tokio::join!(session, reporting);
        waiting.dec();
        drop(place);
    }
}

/// Registers and has the session.
fn have(opened: Opened, reporter: Arc<Reporter>) -> impl Future<Output = ()> + Send {
    let bridge = Arc::clone(&opened.bridge);
    // Boxed before anything is polled, for the short time that it takes: a future is as large as all it was made of.
    let registering = Box::pin(Session::register(opened, reporter));
    async move {
        bridge.metrics.opening.inc();
        let registered = registering.await;
        bridge.metrics.opening.dec();
        if let Some(mut session) = registered {
            let end = session.follow().await;
            session.finish(end);
        }
    }
}

/// A registered session.
struct Session {
    bridge: Arc<Bridge>,
    workspace_id: Uuid,
    sandbox_id: Uuid,
    inbound: Streaming<SupervisorMessage>,
    outbox: Arc<Outbox>,
    reporter: Arc<Reporter>,
    place: Place,
    /// None: nothing is pushed.
    snapshots: Option<KeyFollower>,
    /// Until it is accepted.
    established: Option<oneshot::Sender<Result<Messages, Status>>>,
    began: Instant,
    first: Option<Boxed<Result<Entry, End>>>,
    reread: Option<Boxed<Reread>>,
    reread_at: Instant,
    heartbeat_at: Instant,
    silent_at: Instant,
}

impl Session {
    /// Tells everybody that it is over.
    fn finish(self, end: End) {
        tracing::info!(session_id = %self.reporter.session_id(), sandbox_id = %self.sandbox_id, reason = end.word(), "session ended");
        self.bridge.metrics.ended(end);
        let close = self.place.orders().close;
        let to = close.filter(|close| close.end == end && self.established.is_none()).and_then(|close| close.to);
        if to.is_some() {
            self.bridge.metrics.moved(end);
        }
        self.outbox.end(end.status(), to);
        self.reporter.end(end);
        match self.established {
            Some(established) => refuse(established, end.status()),
            None => {
                self.bridge.metrics.held.dec();
            }
        }
    }
}

/// Tells a supervisor, if it is still there, that its session was not accepted.
fn refuse(established: oneshot::Sender<Result<Messages, Status>>, status: Status) {
    if established.send(Err(status)).is_err() {
        tracing::debug!("a supervisor had gone before its session could be refused");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a future takes that was made by this function.
    fn size_of_future<A, B, F: Future>(_: fn(A, B) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_session_is_small_while_nothing_happens() {
        // There are thousands of them, and each holds these until it ends. What is rare or short belongs into a box.
        assert!(size_of_future(have) <= 2 * 1024, "{} bytes", size_of_future(have));
        assert!(size_of_future(run) <= 768, "{} bytes", size_of_future(run));
        assert!(size_of::<Outbox>() <= 1152, "{} bytes", size_of::<Outbox>());
    }
}
