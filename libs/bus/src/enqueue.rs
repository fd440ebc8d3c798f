//! Durable publishes.

use async_nats::{HeaderMap, StatusCode};
use bytes::Bytes;
use roadstead_proto::subject::REPLY_HEADER;
use tokio::time::Instant;

use crate::jetstream::{PubAck, StoreError, read};
use crate::request::RequestError;
use crate::{BROKER_TIMEOUT, Bus};

/// How a durable publish ended, if not with the store's ack.
#[derive(Debug, thiserror::Error)]
pub enum EnqueueError {
    /// The stream is at its limit. Not stored.
    #[error("the queue is full")]
    Full,
    /// No stream takes this subject now. Not stored.
    #[error("no stream takes this subject")]
    NoStream,
    /// The message is too large or its subject malformed. Never sent.
    #[error("the message cannot be sent")]
    Unsendable(#[source] async_nats::PublishError),
    /// The store refused for another reason. Not stored.
    #[error("the store refused the message: {description} ({code})")]
    Refused { code: u64, description: String },
    /// No ack in time, or not a readable one: the message may be stored, and may still be on its way.
    #[error("whether the message was stored is unknown")]
    Unknown,
}

impl EnqueueError {
    /// Whether the message is certainly not in the stream.
    #[must_use]
    pub fn is_definite(&self) -> bool {
        !matches!(self, Self::Unknown)
    }
}

impl Bus {
    /// Publishes to a stream and waits up to two seconds for its ack. `reply` is where the application's answer is
    /// wanted; it travels in a header. No message id is set: the broker's memory of ids would swallow honest re-sends.
    ///
    /// # Errors
    ///
    /// See [`EnqueueError`]; only [`EnqueueError::Unknown`] leaves open whether the message is stored.
    pub async fn enqueue(
        &self,
        subject: impl Into<String>,
        payload: Bytes,
        reply: Option<&str>,
    ) -> Result<(), EnqueueError> {
        let mut headers = HeaderMap::new();
        if let Some(reply) = reply {
            headers.insert(REPLY_HEADER, reply);
        }
        let stored = self.store(subject.into(), headers, payload).await;
        stored.map(|_ack| ()).map_err(|error| self.ended(error))
    }

    /// Publishes to one subject of a stream, in this order, and waits up to two seconds for all acks together; how many
    /// came. Those that did not come are not repeated: they may be stored, too.
    pub async fn enqueue_all(&self, subject: &str, payloads: Vec<Bytes>) -> usize {
        let deadline = Instant::now() + BROKER_TIMEOUT;
        let mut expected = Vec::with_capacity(payloads.len());
        let sending = async {
            for payload in payloads {
                let reply = self.replies().expect_reply();
                let inbox = reply.subject().to_owned();
                if self.client().publish_with_reply(subject.to_owned(), inbox, payload).await.is_ok() {
                    expected.push(reply);
                }
            }
        };
        // What a broker that is away leaves unsent is not acked either.
        let _sent = tokio::time::timeout_at(deadline, sending).await;
        let mut stored = 0;
        for reply in &mut expected {
            let Ok(Some(reply)) = tokio::time::timeout_at(deadline, reply.arrives()).await else { break };
            match read::<PubAck>(&reply.payload) {
                Ok(_) => stored += 1,
                Err(_) if reply.status == Some(StatusCode::NO_RESPONDERS) => self.report_missing(),
                Err(error) => tracing::debug!(subject, %error, "a message was not stored"),
            }
        }
        stored
    }

    fn ended(&self, error: StoreError) -> EnqueueError {
        match error {
            StoreError::Refused(refusal) if refusal.is_full() => EnqueueError::Full,
            StoreError::Refused(refusal) => {
                EnqueueError::Refused { code: refusal.err_code, description: refusal.description }
            }
            StoreError::Request(RequestError::NoResponders) => {
                self.report_missing();
                EnqueueError::NoStream
            }
            StoreError::Request(RequestError::Unsendable(error)) => EnqueueError::Unsendable(error),
            StoreError::Request(_) | StoreError::Unreadable(_) => EnqueueError::Unknown,
        }
    }
}
