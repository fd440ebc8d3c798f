//! What goes to the supervisor. Nothing waits here as a message: the transport asks when it can send, and gets what is
//! the newest then.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::Stream;
use prost::Message as _;
use roadstead_proto::api::v1::gateway_message::Payload;
use roadstead_proto::api::v1::{
    ConfigUpdate, ConfigUpdateResult, GatewayHeartbeat, GatewayMessage, ProviderEnvironmentSnapshot, SessionAccepted,
    SessionRedirect,
};
use roadstead_proto::internal::SessionResult;
use roadstead_proto::sealing::CipherKeys;
use tokio::sync::Notify;
use tonic::Status;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::end::End;
use crate::metrics::Metrics;
use crate::slots::{Entry, Frame, Reaction, Slots, update_id};

/// Both ends of what goes to one supervisor.
pub(crate) struct Outbox {
    session_id: Uuid,
    sandbox_id: Uuid,
    heartbeat: Duration,
    keys: Arc<CipherKeys>,
    metrics: Arc<Metrics>,
    state: Mutex<State>,
    /// The transport took something, or went away, or the session was nudged.
    happened: Notify,
}

struct State {
    /// None: the session is not sent any configuration.
    slots: Option<Slots>,
    greeting: Greeting,
    heartbeat_due: bool,
    /// Since when something has been waiting for the transport.
    waiting_since: Option<Instant>,
    /// Where the supervisor is sent, before the end or while there is time.
    redirect: Option<Arc<SessionRedirect>>,
    end: Option<Status>,
    /// Something happened that ends the session.
    broken: Option<End>,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Greeting {
    NotYet,
    Due,
    Sent,
}

impl Outbox {
    pub(crate) fn new(
        session_id: Uuid,
        sandbox_id: Uuid,
        push: bool,
        heartbeat: Duration,
        keys: Arc<CipherKeys>,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        let state = State {
            slots: push.then(Slots::default),
            greeting: Greeting::NotYet,
            heartbeat_due: false,
            waiting_since: None,
            redirect: None,
            end: None,
            broken: None,
            waker: None,
        };
        let (state, happened) = (Mutex::new(state), Notify::new());
        Arc::new(Self { session_id, sandbox_id, heartbeat, keys, metrics, state, happened })
    }

    /// What the transport sends.
    pub(crate) fn messages(self: &Arc<Self>) -> Messages {
        Messages(Arc::clone(self))
    }

    /// Accepts the session, with the first update if there is one by then.
    pub(crate) fn accept(&self) {
        self.change(|state| state.greeting = Greeting::Due);
    }

    /// A heartbeat is due. One that has not been taken stands for all.
    pub(crate) fn beat(&self) {
        self.change(|state| state.heartbeat_due = true);
    }

    /// Takes in an entry. Whether it was news.
    pub(crate) fn offer(&self, entry: Entry, now: Instant) -> bool {
        self.change(|state| state.slots.as_mut().is_some_and(|slots| slots.offer(entry, now)))
    }

    /// Whether there is, or was, something to send.
    pub(crate) fn has_entry(&self) -> bool {
        self.lock().slots.as_ref().is_some_and(|slots| slots.newest().is_some())
    }

    /// Takes in an answer. The result is to be reported if the reaction says so.
    pub(crate) fn hear(&self, answer: &ConfigUpdateResult, now: Instant) -> Option<(Reaction, SessionResult)> {
        let ordinal = update_id::read(self.session_id, &answer.update_id)?;
        self.change(|state| {
            let slots = state.slots.as_mut()?;
            let reaction = slots.hear(ordinal, answer, now);
            Some((reaction, slots.verdict().report(self.session_id)))
        })
    }

    /// Ends the stream with this status, after sending the supervisor elsewhere if it has been accepted.
    pub(crate) fn end(&self, status: Status, redirect: Option<Arc<SessionRedirect>>) {
        self.change(|state| {
            state.end.get_or_insert(status);
            state.redirect = redirect;
            state.slots = None;
        });
    }

    /// Asks the supervisor, once it has been accepted, to connect again there. The session goes on.
    pub(crate) fn ask(&self, redirect: Arc<SessionRedirect>) {
        self.change(|state| state.redirect = Some(redirect));
    }

    /// When an update is due that is not due now.
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        self.lock().slots.as_ref().and_then(Slots::due).filter(|due| *due > now)
    }

    /// Since when the transport has not taken what there was to send.
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        self.lock().waiting_since
    }

    /// Since when the oldest update has been waiting for its answer.
    pub(crate) fn unanswered_since(&self) -> Option<Instant> {
        self.lock().slots.as_ref().and_then(Slots::unanswered_since)
    }

    /// Why the session must end, if it must.
    pub(crate) fn broken(&self) -> Option<End> {
        self.lock().broken
    }

    /// Waits until the transport took something or went away, or the session was nudged.
    pub(crate) async fn happened(&self) {
        self.happened.notified().await;
    }

    /// Lets the session look at what is due: something happened that it does not wait for itself.
    pub(crate) fn nudge(&self) {
        self.happened.notify_one();
    }

    /// Lets the transport look again: time has passed.
    pub(crate) fn wake(&self) {
        self.change(|_| ());
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let changed = change(&mut state);
        let now = Instant::now();
        if state.waiting_since.is_none() && state.has_something(now) {
            state.waiting_since = Some(now);
        }
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        changed
    }

    fn next(&self, state: &mut State) -> Option<Result<GatewayMessage, Status>> {
        let now = Instant::now();
        state.waiting_since = None;
        if state.greeting == Greeting::Sent
            && let Some(redirect) = state.redirect.take()
        {
            let payload = Payload::SessionRedirect(SessionRedirect::clone(&redirect));
            return Some(Ok(GatewayMessage { payload: Some(payload) }));
        }
        if let Some(status) = state.end.take() {
            state.broken.get_or_insert(End::Closed);
            return Some(Err(status));
        }
        let payload = match state.greeting {
            Greeting::NotYet => return None,
            Greeting::Due => {
                state.greeting = Greeting::Sent;
                self.greeting(state, now)
            }
            Greeting::Sent if state.heartbeat_due => {
                state.heartbeat_due = false;
                Ok(Payload::Heartbeat(GatewayHeartbeat {}))
            }
            Greeting::Sent => {
                let frame = state.slots.as_mut()?.take_frame(now)?;
                self.update(frame, now, "update").map(Payload::ConfigUpdate)
            }
        };
        match payload {
            Ok(payload) => Some(Ok(GatewayMessage { payload: Some(payload) })),
            Err(end) => {
                state.broken.get_or_insert(end);
                state.slots = None;
                Some(Err(end.status()))
            }
        }
    }

    fn greeting(&self, state: &mut State, now: Instant) -> Result<Payload, End> {
        let frame = state.slots.as_mut().and_then(|slots| slots.take_frame(now));
        let bootstrap = frame.map(|frame| self.update(frame, now, "bootstrap")).transpose()?;
        Ok(Payload::SessionAccepted(SessionAccepted {
            session_id: self.session_id.to_string(),
            bootstrap,
            config_push_enabled: state.slots.is_some(),
            heartbeat_interval: Some(prost_types::Duration {
                seconds: self.heartbeat.as_secs().try_into().unwrap_or(i64::MAX),
                nanos: self.heartbeat.subsec_nanos().try_into().unwrap_or_default(),
            }),
        }))
    }

    fn update(&self, frame: Frame, now: Instant, kind: &'static str) -> Result<ConfigUpdate, End> {
        let environment = frame.environment.map(|sealed| self.open(&sealed)).transpose()?;
        let waited = now.saturating_duration_since(frame.wanted_since);
        self.metrics.sent(kind, frame.again, waited);
        Ok(ConfigUpdate {
            update_id: update_id::write(self.session_id, frame.ordinal),
            sandbox_config: frame.config.map(|config| *config),
            provider_environment: environment,
        })
    }

    fn open(&self, sealed: &Bytes) -> Result<ProviderEnvironmentSnapshot, End> {
        let opened = self.keys.decrypt(self.sandbox_id.as_bytes(), sealed).map_err(|error| {
            tracing::error!(sandbox_id = %self.sandbox_id, %error, "an environment cannot be opened");
            End::Sealed
        })?;
        let opened = Zeroizing::new(opened);
        ProviderEnvironmentSnapshot::decode(opened.as_slice()).map_err(|_| {
            tracing::error!(sandbox_id = %self.sandbox_id, "an environment cannot be decoded");
            End::Sealed
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn has_something(&self, now: Instant) -> bool {
        let update_due = || self.slots.as_ref().and_then(Slots::due).is_some_and(|due| due <= now);
        match self.greeting {
            Greeting::NotYet => self.end.is_some(),
            Greeting::Due => true,
            Greeting::Sent => self.end.is_some() || self.heartbeat_due || update_due(),
        }
    }
}

/// The messages of a session, as the transport takes them.
pub(crate) struct Messages(Arc<Outbox>);

impl Stream for Messages {
    type Item = Result<Bytes, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.0.lock();
        let Some(next) = self.0.next(&mut state) else {
            state.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        drop(state);
        self.0.happened.notify_one();
        Poll::Ready(Some(next.map(|message| message.encode_to_vec().into())))
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.0.change(|state| {
            state.broken.get_or_insert(End::Lost);
            state.slots = None;
        });
        self.0.happened.notify_one();
    }
}
