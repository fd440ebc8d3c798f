//! One message in hand.

use std::future::Future;
use std::time::Duration;

use async_nats::{Client, Message, Subject};
use bytes::Bytes;
use prometheus_client::metrics::counter::Counter;
use roadstead_proto::subject::REPLY_HEADER;
use tokio::runtime::Handle;

use crate::ack_subject::Delivered;

/// How often a holder at work tells the broker that it lives (the ack wait is 5 s).
const PROGRESS_EVERY: Duration = Duration::from_millis(1500);
/// The first pause of a message whose holder dropped it undecided; it doubles with each attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Deliveries, over about a minute, of a message that none of the replicas that had it knows.
const ATTEMPTS_OF_A_STRANGER: u64 = 16;

/// A message taken from a consumer, to be decided by exactly one of [`ack`](Self::ack), [`put_back`](Self::put_back) and
/// [`set_aside`](Self::set_aside). One that is dropped undecided is put back. An ack is no proof of ownership: a holder
/// that was too slow shares the message with the next.
#[derive(Debug)]
pub struct Delivery {
    client: Client,
    /// Taken by the decision.
    ack: Option<Subject>,
    delivered: Delivered,
    subject: Subject,
    payload: Bytes,
    reply: Option<String>,
    not_understood: Counter,
}

impl Delivery {
    /// None if the message carries no ack subject.
    pub(super) fn new(client: Client, not_understood: Counter, message: Message) -> Option<Self> {
        let ack = message.reply?;
        let delivered = Delivered::parse(&ack)?;
        let reply = message.headers.as_ref().and_then(|headers| headers.get(REPLY_HEADER));
        let reply = reply.map(|value| value.as_str().to_owned());
        let Message { subject, payload, .. } = message;
        Some(Self { client, ack: Some(ack), delivered, subject, payload, reply, not_understood })
    }

    /// The subject the message was published to.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Its content; cheap to clone.
    #[must_use]
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Where the application's answer is wanted. It was set by the publisher: check it before use.
    #[must_use]
    pub fn reply(&self) -> Option<&str> {
        self.reply.as_deref()
    }

    /// How often the message was delivered, this time included.
    #[must_use]
    pub fn attempt(&self) -> u64 {
        self.delivered.attempt
    }

    /// Its sequence in the stream.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.delivered.sequence
    }

    /// How many messages waited for this consumer when it was delivered.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.delivered.pending
    }

    /// The message is done with.
    pub async fn ack(mut self) {
        self.decide(Bytes::from_static(b"+ACK")).await;
    }

    /// The message is to be delivered again, after `pause`.
    pub async fn put_back(mut self, pause: Duration) {
        self.decide(negative(pause)).await;
    }

    /// The message is poison: it is never delivered again. `reason` goes into the broker's advisory; the caller keeps a
    /// record of its own.
    pub async fn set_aside(mut self, reason: &str) {
        self.decide(Bytes::from(format!("+TERM {reason}"))).await;
    }

    /// The message is of a kind that this process does not know. A replica of a later version may: it is put back for one,
    /// and set aside when none has taken it. Counted each time.
    pub async fn not_understood(self, reason: &str) {
        self.not_understood.inc();
        let subject = self.subject();
        match pause_of_a_stranger(self.attempt()) {
            Some(pause) => {
                tracing::warn!(subject, reason, ?pause, "a message is not understood here; put back");
                self.put_back(pause).await;
            }
            None => {
                tracing::error!(subject, reason, "a message was understood by nobody; set aside");
                self.set_aside(reason).await;
            }
        }
    }

    /// Tells the broker that the holder is at work, which restarts the ack wait.
    pub async fn progress(&self) {
        if let Some(ack) = self.ack.clone() {
            send(&self.client, ack, Bytes::from_static(b"+WPI")).await;
        }
    }

    /// Runs `work` and tells of progress all the while.
    pub async fn holding<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            match tokio::time::timeout(PROGRESS_EVERY, &mut work).await {
                Ok(done) => return done,
                Err(_) => self.progress().await,
            }
        }
    }

    async fn decide(&mut self, decision: Bytes) {
        if let Some(ack) = self.ack.take() {
            send(&self.client, ack, decision).await;
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let Some(ack) = self.ack.take() else { return };
        // Without a runtime the process is about to end, and the ack wait does the same.
        if let Ok(runtime) = Handle::try_current() {
            let (client, decision) = (self.client.clone(), negative(pause_after(self.delivered.attempt)));
            runtime.spawn(async move { send(&client, ack, decision).await });
        }
    }
}

async fn send(client: &Client, ack: Subject, decision: Bytes) {
    // A decision that is not heard is made good by the ack wait: the message comes again.
    if client.publish(ack, decision).await.is_err() {
        tracing::debug!("the connection was closed before a delivery was decided");
    }
}

fn negative(pause: Duration) -> Bytes {
    if pause.is_zero() {
        Bytes::from_static(b"-NAK")
    } else {
        Bytes::from(format!(r#"-NAK {{"delay":{}}}"#, pause.as_nanos()))
    }
}

fn pause_after(attempt: u64) -> Duration {
    let doublings = u32::try_from(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
    FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST_PAUSE)
}

/// None: nobody knows it.
fn pause_of_a_stranger(attempt: u64) -> Option<Duration> {
    (attempt < ATTEMPTS_OF_A_STRANGER).then(|| pause_after(attempt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_and_is_bounded() {
        assert_eq!(pause_after(1), FIRST_PAUSE);
        assert_eq!(pause_after(3), FIRST_PAUSE * 4);
        assert_eq!(pause_after(u64::MAX), LONGEST_PAUSE);
    }

    #[test]
    fn what_nobody_understands_is_offered_for_about_a_minute() {
        let pauses: Vec<_> = (1..).map_while(pause_of_a_stranger).collect();
        let all: Duration = pauses.iter().sum();
        assert!((40..90).contains(&all.as_secs()), "{all:?}");
    }
}
