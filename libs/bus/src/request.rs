//! Core messages and requests.

use std::time::Duration;

use async_nats::{HeaderMap, Message, PublishError, StatusCode};
use bytes::Bytes;

use crate::Bus;

const SERVICE_ERROR: &str = "Nats-Service-Error";
const SERVICE_ERROR_CODE: &str = "Nats-Service-Error-Code";

/// Code of the error with which an overloaded service answers.
pub(crate) const OVERLOADED: usize = 429;

/// How a request ended without an answer.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// Nobody serves the subject: the request had no effect.
    #[error("nobody serves this subject")]
    NoResponders,
    /// No answer in time: whether the request had an effect is unknown.
    #[error("no answer in time")]
    TimedOut,
    /// The service has no room: the request had no effect.
    #[error("the service is overloaded")]
    Overloaded,
    /// The service answered with an error of its own.
    #[error("the service failed: {description} ({code})")]
    Failed { code: usize, description: String },
    /// The request could not be sent: it is too large, or its subject is malformed.
    #[error("the request cannot be sent")]
    Unsendable(#[source] PublishError),
    /// This connection was closed.
    #[error("the connection to the broker was closed")]
    Closed,
}

impl Bus {
    /// Publishes a core message: whoever listens now receives it, and nobody tells.
    ///
    /// # Errors
    ///
    /// If it cannot be sent; not if it is lost or refused later.
    pub async fn publish(&self, subject: impl Into<String>, payload: Bytes) -> Result<(), PublishError> {
        self.client().publish(subject.into(), payload).await
    }

    /// Asks one of those who serve the subject and waits for the answer, at most `timeout`.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub async fn request(
        &self,
        subject: impl Into<String>,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, RequestError> {
        answer(self.ask(subject.into(), HeaderMap::new(), payload, timeout).await?)
    }

    /// Sends one message and waits for one reply on the shared inbox.
    pub(crate) async fn ask(
        &self,
        subject: String,
        headers: HeaderMap,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Message, RequestError> {
        let mut expected = self.replies().expect_reply();
        let inbox = expected.subject().to_owned();
        let exchange = async {
            let client = self.client();
            if headers.is_empty() {
                client.publish_with_reply(subject, inbox, payload).await
            } else {
                client.publish_with_reply_and_headers(subject, inbox, headers, payload).await
            }
            .map_err(RequestError::Unsendable)?;
            expected.arrives().await.ok_or(RequestError::Closed)
        };
        let reply = tokio::time::timeout(timeout, exchange).await.map_err(|_| RequestError::TimedOut)??;
        match reply.status {
            Some(StatusCode::NO_RESPONDERS) => Err(RequestError::NoResponders),
            _ => Ok(reply),
        }
    }
}

/// What a service has answered.
pub(crate) fn answer(reply: Message) -> Result<Bytes, RequestError> {
    let Some(description) = header(&reply, SERVICE_ERROR) else { return Ok(reply.payload) };
    match header(&reply, SERVICE_ERROR_CODE).and_then(|code| code.parse().ok()) {
        Some(OVERLOADED) => Err(RequestError::Overloaded),
        code => Err(RequestError::Failed { code: code.unwrap_or(0), description: description.to_owned() }),
    }
}

/// A header of a message.
pub(crate) fn header<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    message.headers.as_ref().and_then(|headers| headers.get(name)).map(AsRef::as_ref)
}
