//! One session, from its registration to its end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use prost::Message as _;
use roadstead_bus::bucket::Entry as Read;
use roadstead_bus::feed::{KeyFollower, News};
use roadstead_proto::api::v1::supervisor_message::Payload;
use roadstead_proto::api::v1::{ConfigUpdateResult, SupervisorHello, SupervisorMessage};
use roadstead_proto::internal::{SandboxEntry, SandboxIdentity};
use roadstead_service_kit::clock;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tonic::{Code, Status, Streaming};
use uuid::Uuid;

use crate::bootstrap;
use crate::bridge::Bridge;
use crate::end::End;
use crate::entries::{self, Reread, Subscribed};
use crate::entry;
use crate::open::{Registration, register};
use crate::outbox::{Messages, Outbox};
use crate::over::Known;
use crate::reporter::Reporter;
use crate::sessions::{Entering, Place};
use crate::slots::Entry;

/// How long a session that is to be opened waits for its turn.
const TURN: Duration = Duration::from_secs(20);
/// A session is accepted without its first update if that takes longer.
const ACCEPT: Duration = Duration::from_secs(1);
/// A session whose first update takes longer is ended.
const FIRST_UPDATE: Duration = Duration::from_secs(30);
/// Heartbeats of the supervisor that may be missing.
const MISSING_HEARTBEATS: u32 = 3;
/// How long a supervisor may leave unread what it was sent.
const STALLED: Duration = Duration::from_secs(120);
/// How long a session outlives its token: the leeway that its verification has too.
const LEEWAY: Duration = Duration::from_secs(60);
/// Until the next attempt after entries could not be read.
const RETRY_READ: Duration = Duration::from_secs(5);
/// After a reconnect every session reads again: spread over this for each of them, so that the broker keeps up.
const READ_SPREAD: Duration = Duration::from_millis(1);
const LONGEST_SPREAD: Duration = Duration::from_secs(5);

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
async fn have(opened: Opened, reporter: Arc<Reporter>) {
    let bridge = Arc::clone(&opened.bridge);
    bridge.metrics.opening.inc();
    // Boxed for the short time that it takes.
    let registered = Box::pin(Session::register(opened, reporter)).await;
    bridge.metrics.opening.dec();
    if let Some(mut session) = registered {
        let end = session.follow().await;
        session.finish(end);
    }
}

/// A registered session.
struct Session {
    bridge: Arc<Bridge>,
    sandbox_id: Uuid,
    inbound: Streaming<SupervisorMessage>,
    outbox: Arc<Outbox>,
    reporter: Arc<Reporter>,
    place: Place,
    /// None: nothing is pushed.
    snapshots: Option<KeyFollower>,
    sandbox: KeyFollower,
    sandbox_key: String,
    known: Known,
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
    /// Registers the session and subscribes. None: it is over already, and everybody was told.
    async fn register(opened: Opened, reporter: Arc<Reporter>) -> Option<Self> {
        let Opened { bridge, identity, sandbox_id, token_expires, hello, inbound, established, traceparent } = opened;
        let session_id = reporter.session_id();
        let opening = Arc::clone(&bridge.opening);
        let turn = tokio::time::timeout(TURN, opening.acquire()).await;
        let Ok(Ok(_turn)) = turn else {
            reporter.registration_refused();
            refuse(established, roadstead_door::status::busy("too many sessions are being opened"));
            return None;
        };
        let registered = match register(&bridge, session_id, &identity, &hello, traceparent.clone()).await {
            Registration::Registered(registered) => registered,
            Registration::Refused(status) => {
                reporter.registration_refused();
                refuse(established, status);
                return None;
            }
            Registration::Unknown(status) => {
                reporter.registration_settled();
                reporter.end(End::Lost);
                refuse(established, status);
                return None;
            }
        };
        reporter.registration_settled();
        if established.is_closed() {
            reporter.end(End::Lost);
            return None;
        }

        let (push, generation) = (hello.supports_config_push, identity.generation);
        let subscribed = entries::subscribe(&bridge, sandbox_id, &registered.workspace_id, push).await;
        let Some(Subscribed { sandbox_key, sandbox, snapshots }) = subscribed else {
            reporter.end(End::NoConfiguration);
            refuse(established, End::NoConfiguration.status());
            return None;
        };
        let heartbeat = bridge.times.heartbeat;
        let (keys, metrics) = (Arc::clone(&bridge.keys), bridge.metrics.clone());
        let outbox = Outbox::new(session_id, sandbox_id, push, heartbeat, keys, metrics);
        let place = bridge.sessions.enter(Entering {
            sandbox_id,
            generation,
            token_expires,
            readiness_announced: hello.supports_provider_readiness,
            movable_at: movable_at(&hello, bridge.times.settle),
            outbox: &outbox,
            reporter: &reporter,
        });
        // After entering: whoever ends all sessions has either seen this one or been seen here.
        if bridge.drain.is_cancelled() {
            reporter.end(End::Draining);
            refuse(established, End::Draining.status());
            return None;
        }
        let now = Instant::now();
        let first: Option<Boxed<_>> = push.then(|| {
            let bootstrap = bootstrap::entry(Arc::clone(&bridge), identity, traceparent, now + FIRST_UPDATE);
            Box::pin(bootstrap) as Boxed<_>
        });
        tracing::info!(%session_id, %sandbox_id, push, "session registered");
        Some(Self {
            sandbox_id,
            inbound,
            place,
            outbox,
            reporter,
            snapshots,
            sandbox,
            sandbox_key,
            known: Known::registered(registered.resource_version),
            established: Some(established),
            began: now,
            first,
            reread: None,
            // What the projection shows now was not heard of.
            reread_at: now,
            heartbeat_at: now + heartbeat,
            silent_at: now + heartbeat * MISSING_HEARTBEATS,
            bridge,
        })
    }

    /// Follows everything that concerns the session, to its end.
    async fn follow(&mut self) -> End {
        loop {
            let now = Instant::now();
            if let Some(end) = self.tick(now) {
                return end;
            }
            let wake = self.wake_at(now);
            let end = tokio::select! {
                message = self.inbound.message() => self.heard(message),
                news = next(&mut self.snapshots) => self.snapshot_news(news),
                news = self.sandbox.next() => self.sandbox_news(news),
                first = ready(&mut self.first) => self.first_entry(first),
                read = ready(&mut self.reread) => self.was_read(read),
                () = self.outbox.happened() => None,
                () = self.reporter.superseded() => Some(End::Superseded),
                Ok(()) = self.place.orders.changed() => None,
                () = tokio::time::sleep_until(wake.into()) => {
                    self.outbox.wake();
                    None
                }
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Does what is due.
    fn tick(&mut self, now: Instant) -> Option<End> {
        if let Some(end) = self.outbox.broken() {
            return Some(end);
        }
        let orders = self.place.orders.borrow_and_update().clone();
        if let Some(close) = orders.close.filter(|close| close.at <= now) {
            return Some(close.end);
        }
        if clock::now() >= orders.token_expires + LEEWAY {
            return Some(End::TokenExpired);
        }
        if self.silent_at <= now {
            return Some(End::Silent);
        }
        if self.outbox.waiting_since().is_some_and(|since| since + STALLED <= now) {
            return Some(End::Stalled);
        }
        if self.heartbeat_at <= now {
            self.heartbeat_at = now + self.bridge.times.heartbeat;
            self.outbox.beat();
        }
        if self.place.lapse(&self.reporter, now) {
            self.bridge.metrics.readiness_lapsed.inc();
        }
        if self.reread_at <= now && self.reread.is_none() {
            self.read_again();
        }
        let may_accept = self.first.is_none() || self.outbox.has_entry() || self.began + ACCEPT <= now;
        if may_accept && let Some(established) = self.established.take() {
            if established.send(Ok(self.outbox.messages())).is_err() {
                return Some(End::Lost);
            }
            self.outbox.accept();
            self.bridge.metrics.accepted.inc();
            self.bridge.metrics.held.inc();
        }
        None
    }

    /// When something is due, if nothing happens before.
    fn wake_at(&self, now: Instant) -> Instant {
        let orders = self.place.orders.borrow().clone();
        let token = (orders.token_expires + LEEWAY).duration_since(clock::now()).unwrap_or_default();
        let accept = self.established.is_some().then_some(self.began + ACCEPT);
        let times = [
            Some(now + token),
            Some(self.silent_at),
            Some(self.heartbeat_at),
            self.reread.is_none().then_some(self.reread_at),
            accept,
            orders.close.map(|close| close.at),
            self.place.lapse_due(),
            self.outbox.due(now),
            self.outbox.waiting_since().map(|since| since + STALLED),
        ];
        times.into_iter().flatten().min().unwrap_or(now)
    }

    fn heard(&mut self, message: Result<Option<SupervisorMessage>, Status>) -> Option<End> {
        let now = Instant::now();
        let message = match message {
            Ok(Some(message)) => message,
            Ok(None) => return Some(End::Closed),
            Err(status) => {
                let unreadable = matches!(status.code(), Code::OutOfRange | Code::ResourceExhausted | Code::Internal);
                return Some(if unreadable { End::Unreadable } else { End::Lost });
            }
        };
        self.silent_at = now + self.bridge.times.heartbeat * MISSING_HEARTBEATS;
        match message.payload {
            Some(Payload::Hello(hello)) => {
                Some(if hello.sandbox_id == self.sandbox_id.to_string() { End::Repeated } else { End::Foreign })
            }
            Some(Payload::ConfigUpdateResult(answer)) => {
                self.answered(&answer, now);
                None
            }
            Some(Payload::Heartbeat(_)) => None,
            // Relays are not served yet; anything else is from a later version.
            _ => {
                self.bridge.metrics.not_understood.inc();
                tracing::debug!(sandbox_id = %self.sandbox_id, "a message of a kind that is not served; left out");
                None
            }
        }
    }

    fn answered(&mut self, answer: &ConfigUpdateResult, now: Instant) {
        let metrics = &self.bridge.metrics;
        metrics.answered(answer.outcome());
        match self.outbox.hear(answer, now) {
            Some((reaction, result)) if !reaction.unknown => {
                if reaction.report {
                    self.reporter.result(result);
                }
                if reaction.reread {
                    self.reread_at = now;
                }
            }
            _ => {
                metrics.unknown_results.inc();
                tracing::debug!(sandbox_id = %self.sandbox_id, "an answer to an unknown update");
            }
        }
    }

    fn snapshot_news(&mut self, news: Option<News>) -> Option<End> {
        match news {
            Some(News::Stored(stored)) => {
                // A purged entry belongs to a sandbox that is gone, and the projection tells that.
                stored.value.map(|value| self.offer(value));
                None
            }
            Some(News::Gap) => self.missed_something(),
            None => Some(End::NoBroker),
        }
    }

    fn sandbox_news(&mut self, news: Option<News>) -> Option<End> {
        match news {
            Some(News::Stored(stored)) => stored.value.and_then(|value| self.projected(value)),
            Some(News::Gap) => self.missed_something(),
            None => Some(End::NoBroker),
        }
    }

    fn first_entry(&mut self, first: Result<Entry, End>) -> Option<End> {
        match first {
            Ok(entry) => {
                self.outbox.offer(entry, Instant::now());
                None
            }
            // The feed may have brought one meanwhile.
            Err(End::NoConfiguration) if self.outbox.has_entry() => None,
            Err(end) => Some(end),
        }
    }

    /// Something may have been stored that this process did not hear of.
    fn missed_something(&mut self) -> Option<End> {
        let sessions = u32::try_from(self.bridge.sessions.len()).unwrap_or(u32::MAX);
        let spread = READ_SPREAD.saturating_mul(sessions).min(LONGEST_SPREAD);
        self.reread_at = self.reread_at.min(Instant::now() + spread.mul_f64(rand::random()));
        None
    }

    fn read_again(&mut self) {
        // Before the first entry is there, a bootstrap is under way, which is never older.
        let push = self.snapshots.is_some() && self.first.is_none();
        let reading = entries::read_again(Arc::clone(&self.bridge), self.sandbox_key.clone(), self.sandbox_id, push);
        self.reread = Some(Box::pin(reading));
    }

    fn was_read(&mut self, read: Reread) -> Option<End> {
        let now = Instant::now();
        // From 90 to 110 percent of the interval.
        self.reread_at = now + self.bridge.times.reread.mul_f64(0.9 + rand::random::<f64>() / 5.0);
        let mut failed = false;
        match read.snapshot {
            Some(Ok(Read { value: Some(value), .. })) => {
                if self.offer(value) {
                    self.bridge.metrics.missed.inc();
                }
            }
            Some(Err(_)) => failed = true,
            Some(Ok(_)) | None => {}
        }
        let end = match read.sandbox {
            Ok(Read { value, .. }) => value.and_then(|value| self.projected(value)),
            Err(_) => {
                failed = true;
                None
            }
        };
        if failed {
            self.reread_at = now + RETRY_READ.mul_f64(0.5 + rand::random::<f64>());
        }
        end
    }

    fn offer(&mut self, value: Bytes) -> bool {
        match entry::read(value) {
            Ok(entry) => self.outbox.offer(entry, Instant::now()),
            Err(error) => {
                self.bridge.metrics.not_understood.inc();
                tracing::error!(sandbox_id = %self.sandbox_id, %error, "an entry is left out");
                false
            }
        }
    }

    fn projected(&mut self, value: Bytes) -> Option<End> {
        match SandboxEntry::decode(value) {
            Ok(entry) => self.known.end(&entry),
            Err(_) => {
                self.bridge.metrics.not_understood.inc();
                tracing::error!(sandbox_id = %self.sandbox_id, "a projected sandbox cannot be decoded; left out");
                None
            }
        }
    }

    /// Tells everybody that it is over.
    fn finish(self, end: End) {
        tracing::info!(session_id = %self.reporter.session_id(), sandbox_id = %self.sandbox_id, reason = end.word(), "session ended");
        self.bridge.metrics.ended(end);
        let close = self.place.orders.borrow().close.clone();
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

/// From when on a session may be handed over for the sake of balance: whoever was handed over has had its share of that
/// for some time, so that no supervisor is sent round and round.
fn movable_at(hello: &SupervisorHello, settle: Duration) -> Option<Instant> {
    let settles = if hello.redirected { settle } else { Duration::ZERO };
    hello.supports_session_redirect.then(|| Instant::now() + settles)
}

/// Tells a supervisor, if it is still there, that its session was not accepted.
fn refuse(established: oneshot::Sender<Result<Messages, Status>>, status: Status) {
    if established.send(Err(status)).is_err() {
        tracing::debug!("a supervisor had gone before its session could be refused");
    }
}

/// The next news, or never.
async fn next(follower: &mut Option<KeyFollower>) -> Option<News> {
    match follower {
        Some(follower) => follower.next().await,
        None => std::future::pending().await,
    }
}

/// What the future comes to, once; then never.
async fn ready<T>(future: &mut Option<Boxed<T>>) -> T {
    match future {
        Some(running) => {
            let value = running.await;
            *future = None;
            value
        }
        None => std::future::pending().await,
    }
}
