//! Work from a durable consumer: one message of credit for each free slot, and no more.
//!
//! The client's pull stream loses count of its credit when a message overtakes the result of its request, and is then
//! silent for seconds; with one message a request that is the rule, not the exception. So requests are made here one by
//! one, each for one message, and counted.

mod credit;
mod delivery;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use async_nats::{Client, Message, StatusCode, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use prometheus_client::metrics::counter::Counter;
use roadstead_proto::stream::Consumer;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::metrics::Of;
use crate::{Bus, queue};
use credit::Credit;
pub use delivery::Delivery;

/// How long one request for a message stands.
const EXPIRES: Duration = Duration::from_secs(3);
/// A request that is not even answered by its expiry is given up a little later.
const GRACE: Duration = Duration::from_secs(1);
/// How often requests without an answer are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Pause after the broker refused a request: the consumer is missing, moves, or has too many requests.
const REFUSED_PAUSE: Duration = Duration::from_millis(500);

/// A loop with free slots that has got nothing for this long asks whether something waits. By then a lost request was
/// given up, and the ack wait is over.
const STALL: Duration = Duration::from_secs(6);
/// What waits is looked at again after this: it may only have been on its way.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A loop that is told to stop takes what standing requests bring until nothing came for this long.
const QUIET: Duration = Duration::from_millis(200);

/// Why a pull loop ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    #[error("cannot subscribe to the pull inbox")]
    Subscribe(#[from] async_nats::SubscribeError),
    #[error("the connection to the broker was closed")]
    Closed,
}

/// Takes messages of `consumer` and runs `handler` on each, at most `slots` at a time, until `stop`. Then it makes no more
/// requests, and returns when what was taken has been handled and the broker knows. Dropping the future aborts the
/// handlers, and what they had not decided is put back.
///
/// A missing consumer is waited for, and reported (see [`Bus::missing`]). A loop that gets nothing while messages and free
/// slots wait begins anew with another inbox, and is counted as stalled.
///
/// # Errors
///
/// If the connection was closed by this process.
pub async fn run<H, F>(
    bus: &Bus,
    consumer: Consumer,
    slots: usize,
    stop: CancellationToken,
    handler: H,
) -> Result<(), PullError>
where
    H: Fn(Delivery) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let (requests, messages) = begin(bus, consumer).await?;
    let of = Of { consumer: consumer.config().name };
    let mut shell = Shell {
        consumer,
        requests,
        messages,
        credit: Credit::new(slots, EXPIRES + GRACE),
        working: JoinSet::new(),
        paused_until: Instant::now(),
        quiet_since: Instant::now(),
        looking: None,
        not_understood: bus.metrics().not_understood.get_or_create(&of).clone(),
    };
    let ended = shell.work(bus, &stop, &handler).await;
    shell.wind_down(bus, &handler).await;
    while let Some(done) = shell.working.join_next().await {
        report(done);
    }
    bus.settle().await;
    ended
}

/// A new inbox, and requests that are answered to it.
async fn begin(bus: &Bus, consumer: Consumer) -> Result<(Requests, Subscriber), PullError> {
    let inbox = bus.inbox().pull(bus.replies().number());
    let messages = bus.client().subscribe(format!("{inbox}.*")).await?;
    Ok((Requests::new(bus.client().clone(), consumer, &inbox), messages))
}

/// Whether messages wait that the broker could deliver, now and a moment later.
async fn something_waits(bus: Bus, consumer: Consumer) -> bool {
    let waits = async || {
        let backlog = queue::backlog(&bus, consumer).await;
        let most = u64::try_from(consumer.config().max_ack_pending).unwrap_or(u64::MAX);
        backlog.is_ok_and(|backlog| backlog.pending > 0 && backlog.unacked < most)
    };
    if !waits().await {
        return false;
    }
    tokio::time::sleep(LOOK_AGAIN).await;
    waits().await
}

struct Shell {
    consumer: Consumer,
    requests: Requests,
    messages: Subscriber,
    credit: Credit,
    working: JoinSet<()>,
    paused_until: Instant,
    /// Since when nothing came although something could have been taken.
    quiet_since: Instant,
    /// Finds out whether it is too quiet.
    looking: Option<Pin<Box<dyn Future<Output = bool> + Send>>>,
    not_understood: Counter,
}

impl Shell {
    async fn work<H, F>(&mut self, bus: &Bus, stop: &CancellationToken, handler: &H) -> Result<(), PullError>
    where
        H: Fn(Delivery) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        let mut reconnects = bus.reconnects();
        let mut look = tokio::time::interval(LOOK_EVERY);
        loop {
            let now = Instant::now();
            // Requests made while disconnected would only pile up in the client.
            if bus.is_connected() && now >= self.paused_until {
                for number in self.credit.requests(now, self.working.len()) {
                    self.requests.send(number).await?;
                }
                self.listen(bus, now);
            } else {
                self.was_heard(now);
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                Some(done) = self.working.join_next() => report(done),
                message = self.messages.next() => match message {
                    Some(message) => self.take(bus, message, handler),
                    None => return Err(PullError::Closed),
                },
                stalled = ready(&mut self.looking) => {
                    self.was_heard(Instant::now());
                    if stalled {
                        self.begin_anew(bus).await?;
                    }
                }
                // The broker forgets the requests of a connection with it.
                Ok(()) = reconnects.changed() => self.credit.forget(),
                _ = look.tick() => {}
            }
        }
    }

    /// Begins to look when it has been quiet for too long.
    fn listen(&mut self, bus: &Bus, now: Instant) {
        if !self.credit.has_room(self.working.len()) {
            self.was_heard(now);
        } else if self.looking.is_none() && now.duration_since(self.quiet_since) >= STALL {
            self.looking = Some(Box::pin(something_waits(bus.clone(), self.consumer)));
        }
    }

    /// It is not quiet, or has a reason to be.
    fn was_heard(&mut self, now: Instant) {
        self.quiet_since = now;
        self.looking = None;
    }

    /// Whatever keeps messages from this inbox may not keep them from another. What was sent to the old one comes again
    /// after the ack wait.
    async fn begin_anew(&mut self, bus: &Bus) -> Result<(), PullError> {
        let of = Of { consumer: self.requests.consumer };
        bus.metrics().stalls.get_or_create(&of).inc();
        tracing::warn!(consumer = of.consumer, "messages wait and none comes; the loop begins anew");
        (self.requests, self.messages) = begin(bus, self.consumer).await?;
        self.credit.forget();
        Ok(())
    }

    fn take<H, F>(&mut self, bus: &Bus, message: Message, handler: &H)
    where
        H: Fn(Delivery) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        if let Some(status) = message.status {
            self.credit.ended(self.requests.number(&message));
            if !matches!(status, StatusCode::TIMEOUT | StatusCode::NOT_FOUND) {
                self.refused(bus, status, message.description.as_deref().unwrap_or_default());
            }
            return;
        }
        self.credit.delivered();
        self.was_heard(Instant::now());
        let Some(delivery) = Delivery::new(bus.client().clone(), self.not_understood.clone(), message) else {
            tracing::error!(consumer = self.requests.consumer, "a message came without an ack subject; left alone");
            return;
        };
        if self.credit.has_room(self.working.len()) {
            self.working.spawn(handler(delivery));
        }
        // Else a request that was thought lost was answered after all: the guard puts the message back for others.
    }

    fn refused(&mut self, bus: &Bus, status: StatusCode, description: &str) {
        let now = Instant::now();
        // All standing requests are refused at once, for the same reason.
        if now >= self.paused_until {
            tracing::warn!(consumer = self.requests.consumer, %status, description, "the broker refused a pull request");
        }
        self.paused_until = now + REFUSED_PAUSE;
        if status == StatusCode::NO_RESPONDERS || description.eq_ignore_ascii_case("consumer deleted") {
            bus.report_missing();
        }
    }

    /// Handles what standing requests still bring, until it is quiet, and ends the subscription. Ending it first would
    /// lose a message that is on its way, for as long as the ack wait.
    async fn wind_down<H, F>(&mut self, bus: &Bus, handler: &H)
    where
        H: Fn(Delivery) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        while self.credit.any_stands()
            && let Ok(Some(message)) = tokio::time::timeout(QUIET, self.messages.next()).await
        {
            self.take(bus, message, handler);
        }
        if self.messages.unsubscribe().await.is_err() {
            tracing::debug!(consumer = self.requests.consumer, "the connection was closed before the loop");
        }
        while let Some(message) = self.messages.next().await {
            self.take(bus, message, handler);
        }
    }
}

/// Requests for one message each; the number is the last token of the inbox, so what the broker says of one is known.
struct Requests {
    client: Client,
    consumer: &'static str,
    subject: String,
    inbox: String,
    body: Bytes,
}

impl Requests {
    fn new(client: Client, consumer: Consumer, inbox: &str) -> Self {
        let config = consumer.config();
        let stream = config.stream.config().name;
        Self {
            client,
            consumer: config.name,
            subject: format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{}", config.name),
            inbox: format!("{inbox}."),
            body: Bytes::from(format!(r#"{{"batch":1,"expires":{}}}"#, EXPIRES.as_nanos())),
        }
    }

    async fn send(&self, number: u64) -> Result<(), PullError> {
        let inbox = format!("{}{number}", self.inbox);
        let sent = self.client.publish_with_reply(self.subject.clone(), inbox, self.body.clone()).await;
        sent.map_err(|_closed| PullError::Closed)
    }

    fn number(&self, status: &Message) -> Option<u64> {
        status.subject.strip_prefix(&self.inbox)?.parse().ok()
    }
}

async fn ready(looking: &mut Option<Pin<Box<dyn Future<Output = bool> + Send>>>) -> bool {
    match looking {
        Some(looking) => looking.await,
        None => std::future::pending().await,
    }
}

fn report(done: Result<(), tokio::task::JoinError>) {
    if let Err(error) = done
        && error.is_panic()
    {
        tracing::error!(%error, "the handler of a delivery failed; the delivery was put back");
    }
}
