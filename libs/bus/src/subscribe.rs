//! Subscriptions that are known to be in effect.

use std::time::Duration;

use async_nats::Subscriber;
use bytes::Bytes;
use futures_util::StreamExt;

use crate::Bus;

/// How long a barrier is waited for before it is sent again.
const BARRIER_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a subscription could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SubscribeError {
    /// The subject is malformed, or the connection was closed.
    #[error("cannot subscribe")]
    Client(#[from] async_nats::SubscribeError),
    /// The connection was closed.
    #[error("the connection to the broker was closed")]
    Closed,
}

/// A message of a subscription.
#[derive(Debug, Clone)]
pub struct Message {
    /// The subject it was published to.
    pub subject: String,
    /// Its content.
    pub payload: Bytes,
    /// Where an answer is wanted, if it is.
    pub reply: Option<String>,
}

/// A subscription. It ends when it is dropped.
#[derive(Debug)]
pub struct Subscription {
    pub(crate) inner: Subscriber,
}

impl Subscription {
    /// The next message; none when the connection was closed.
    pub async fn next(&mut self) -> Option<Message> {
        let message = self.inner.next().await?;
        Some(Message {
            subject: message.subject.into_string(),
            payload: message.payload,
            reply: message.reply.map(async_nats::Subject::into_string),
        })
    }
}

impl Bus {
    /// Subscribes, and returns when the broker has the subscription: what anybody publishes from now on is received.
    /// While the broker is away this waits.
    ///
    /// # Errors
    ///
    /// If the subject is malformed or the connection was closed. A subject the role may not read is not told here: the
    /// broker reports that by [`Bus::violations`] only.
    pub async fn subscribe_effective(&self, subject: impl Into<String>) -> Result<Subscription, SubscribeError> {
        let inner = self.client().subscribe(subject.into()).await?;
        self.barrier().await?;
        Ok(Subscription { inner })
    }

    /// Returns when the broker has taken everything this connection sent before, or a moment later if it does not answer.
    /// Without it the last words of a process can be lost with its connection.
    pub(crate) async fn settle(&self) {
        if !matches!(tokio::time::timeout(BARRIER_TIMEOUT, self.barrier()).await, Ok(Ok(()))) {
            tracing::debug!("what was sent last may be lost");
        }
    }

    /// Returns when the broker has taken everything this connection sent before. A flush would not say so: it only waits
    /// for the socket. Operations of one connection are ordered, so a message to ourselves does.
    ///
    /// # Errors
    ///
    /// If the connection was closed.
    pub async fn barrier(&self) -> Result<(), SubscribeError> {
        let mut expected = self.replies().expect_barrier();
        let subject = expected.subject().to_owned();
        loop {
            self.client().publish(subject.clone(), Bytes::new()).await.map_err(|_| SubscribeError::Closed)?;
            match tokio::time::timeout(BARRIER_TIMEOUT, expected.arrives()).await {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => return Err(SubscribeError::Closed),
                Err(_) => tracing::warn!(role = self.role().name(), "the broker does not answer; waiting for it"),
            }
        }
    }
}
