//! Request/reply services, in the broker's micro service form, so that operators see them with `nats micro`.

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_nats::Message;
use async_nats::service::{Request, ServiceExt, error};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::SelectAll;
use roadstead_proto::subject;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::read::QUESTION;
use crate::request::{OVERLOADED, header};
use crate::{BROKER_TIMEOUT, Bus, SubscribeError};

/// Requests that may wait, unless something else is said.
const WAITING: usize = 512;

/// How many requests a service takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// At most these are worked on at the same time; at least one is.
    pub working: usize,
    /// At most these wait for that.
    pub waiting: usize,
}

impl From<usize> for Slots {
    /// So many at a time, while 512 wait.
    fn from(working: usize) -> Self {
        Self { working, waiting: WAITING }
    }
}

/// What answers a request. Errors of the application are part of the answer's body.
pub type Handler = Arc<dyn Fn(Bytes) -> Pin<Box<dyn Future<Output = Bytes> + Send>> + Send + Sync>;

/// A subject and what answers there.
#[derive(Clone)]
pub struct Endpoint {
    subject: String,
    handler: Handler,
    /// Whether it answers too what is put to all replicas.
    has_no_effect: bool,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Endpoint").field("subject", &self.subject).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// An endpoint at `subject`.
    pub fn new<H, F>(subject: impl Into<String>, handler: H) -> Self
    where
        H: Fn(Bytes) -> F + Send + Sync + 'static,
        F: Future<Output = Bytes> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |request| Box::pin(handler(request)));
        Self { subject: subject.into(), handler, has_no_effect: false }
    }

    /// One whose handler has no effect, so that a question may be put to it more than once: see [`Bus::read`].
    pub fn read<H, F>(subject: impl Into<String>, handler: H) -> Self
    where
        H: Fn(Bytes) -> F + Send + Sync + 'static,
        F: Future<Output = Bytes> + Send + 'static,
    {
        Self { has_no_effect: true, ..Self::new(subject, handler) }
    }
}

/// Why a service could not be offered, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The broker's client refused the name or a subject.
    #[error("cannot offer the service")]
    Start(#[source] async_nats::Error),
    /// The subscriptions could not be made.
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
    /// The connection was closed.
    #[error("the connection to the broker was closed")]
    Closed,
}

/// Serves `endpoints` as one micro service until `stop`, then ends them and returns when what was received has been
/// answered. What does not fit into `slots` is answered at once with an error that callers see as
/// [`RequestError::Overloaded`](crate::RequestError::Overloaded). Replicas share the requests.
///
/// # Errors
///
/// If the service cannot be offered, or the connection was closed by this process.
pub async fn serve(
    bus: &Bus,
    name: &str,
    endpoints: Vec<Endpoint>,
    slots: impl Into<Slots>,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let builder = bus.client().service_builder();
    // The handle has to live as long as the service: its endpoints end with it.
    let service = builder.start(name, env!("CARGO_PKG_VERSION")).await.map_err(ServeError::Start)?;
    let (mut requests, mut to_all) = (SelectAll::new(), SelectAll::new());
    for Endpoint { subject, handler, has_no_effect } in endpoints {
        if has_no_effect {
            let questions = bus.client().subscribe(subject::to_all(&subject)).await.map_err(SubscribeError::from)?;
            let handler = Arc::clone(&handler);
            to_all.push(questions.map(move |question| (question, Arc::clone(&handler))));
        }
        let endpoint = service.endpoint(subject).await.map_err(ServeError::Start)?;
        requests.push(endpoint.map(move |request| (request, Arc::clone(&handler))));
    }
    bus.barrier().await?;
    let room = Room::new(slots.into());
    let mut working = JoinSet::new();
    let ended = loop {
        tokio::select! {
            () = stop.cancelled() => break Ok(()),
            Some(done) = working.join_next() => report(name, done),
            Some((question, handler)) = to_all.next() => room.begin_too(&mut working, bus, question, handler),
            request = requests.next() => match request {
                Some((request, handler)) => room.begin(&mut working, request, handler),
                None => break Err(ServeError::Closed),
            },
        }
    };
    drop(to_all);
    if service.stop().await.is_err() {
        tracing::debug!(service = name, "the service had ended already");
    }
    // Told to stop, the endpoints unsubscribe when they are asked for more, and end with what they had received.
    while let Ok(Some((request, handler))) = tokio::time::timeout(BROKER_TIMEOUT, requests.next()).await {
        room.begin(&mut working, request, handler);
    }
    while let Some(done) = working.join_next().await {
        report(name, done);
    }
    bus.settle().await;
    ended
}

/// Places for requests, and slots to work on them.
struct Room {
    places: Arc<Semaphore>,
    slots: Arc<Semaphore>,
    in_hand: InHand,
}

impl Room {
    fn new(Slots { working, waiting }: Slots) -> Self {
        let working = working.max(1);
        Self {
            places: Arc::new(Semaphore::new(working + waiting)),
            slots: Arc::new(Semaphore::new(working)),
            in_hand: InHand::default(),
        }
    }

    fn begin(&self, working: &mut JoinSet<()>, request: Request, handler: Handler) {
        let place = Arc::clone(&self.places).try_acquire_owned().ok();
        let taken = self.in_hand.take(&request.message);
        let slots = Arc::clone(&self.slots);
        working.spawn(async move {
            let _taken = taken;
            answer(request, handler, place, slots).await;
        });
    }

    /// Others were asked the same, and fresh requests go before: who has it in hand already, or has no idle slot, leaves
    /// it to them without a word.
    fn begin_too(&self, working: &mut JoinSet<()>, bus: &Bus, question: Message, handler: Handler) {
        let (Some(taken), Some(reply)) = (self.in_hand.take(&question), question.reply) else { return };
        let idle = |semaphore: &Arc<Semaphore>| Arc::clone(semaphore).try_acquire_owned();
        let (Ok(place), Ok(slot)) = (idle(&self.places), idle(&self.slots)) else {
            bus.metrics().reads_left.inc();
            return;
        };
        let client = bus.client().clone();
        working.spawn(async move {
            let _held = (taken, place, slot);
            if let Err(error) = client.publish(reply, handler(question.payload).await).await {
                tracing::warn!(subject = %question.subject, %error, "an answer could not be sent");
            }
        });
    }
}

/// Ids of the questions that are worked on, or wait for that.
#[derive(Clone, Default)]
struct InHand(Arc<Mutex<HashSet<String>>>);

impl InHand {
    /// None if it is in hand already, or has no id.
    fn take(&self, question: &Message) -> Option<Taken> {
        let id = header(question, QUESTION)?.to_owned();
        self.lock().insert(id.clone()).then(|| Taken { id, in_hand: self.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question in hand, until it is dropped.
struct Taken {
    id: String,
    in_hand: InHand,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.in_hand.lock().remove(&self.id);
    }
}

async fn answer(request: Request, handler: Handler, place: Option<OwnedSemaphorePermit>, slots: Arc<Semaphore>) {
    let answer = match place {
        Some(_place) => {
            // The semaphore is never closed.
            let _slot = slots.acquire().await;
            Ok(handler(request.message.payload.clone()).await)
        }
        None => Err(error::Error { status: "overloaded".to_owned(), code: OVERLOADED }),
    };
    if let Err(error) = request.respond(answer).await {
        tracing::warn!(subject = %request.message.subject, %error, "an answer could not be sent");
    }
}

fn report(service: &str, done: Result<(), tokio::task::JoinError>) {
    if let Err(error) = done
        && error.is_panic()
    {
        tracing::error!(service, %error, "a request's handler failed; its caller gets no answer");
    }
}
