//! Replies of the broker's store, and what its error codes mean.

use async_nats::HeaderMap;
use bytes::Bytes;
use serde::Deserialize;

use crate::request::RequestError;
use crate::{BROKER_TIMEOUT, Bus};

/// An error as the broker's store tells it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, thiserror::Error)]
#[error("{description} ({err_code})")]
pub(crate) struct Refusal {
    #[serde(default)]
    pub(crate) err_code: u64,
    #[serde(default)]
    pub(crate) description: String,
}

const STORE_FULL: u64 = 10077;
const WRONG_LAST_SEQUENCE: u64 = 10071;
/// The replicated form of a conflict; also told when somebody else's write to the key is still on its way.
const WRONG_LAST_SEQUENCE_REPLICATED: u64 = 10164;
const STREAM_NOT_FOUND: u64 = 10059;
const CONSUMER_NOT_FOUND: u64 = 10014;
const MESSAGE_NOT_FOUND: u64 = 10037;

impl Refusal {
    pub(crate) fn is_full(&self) -> bool {
        self.err_code == STORE_FULL
    }

    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self.err_code, WRONG_LAST_SEQUENCE | WRONG_LAST_SEQUENCE_REPLICATED)
    }

    pub(crate) fn is_missing(&self) -> bool {
        matches!(self.err_code, STREAM_NOT_FOUND | CONSUMER_NOT_FOUND)
    }

    pub(crate) fn is_no_message(&self) -> bool {
        self.err_code == MESSAGE_NOT_FOUND
    }
}

/// How a call to the broker's store failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("the broker's reply cannot be read")]
    Unreadable(#[source] serde_json::Error),
}

#[derive(Deserialize)]
struct Failure {
    error: Option<Refusal>,
}

/// Reads a reply of the store: an error object, or `T`.
pub(crate) fn read<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> Result<T, StoreError> {
    match serde_json::from_slice(payload).map_err(StoreError::Unreadable)? {
        Failure { error: Some(refusal) } => Err(StoreError::Refused(refusal)),
        Failure { error: None } => serde_json::from_slice(payload).map_err(StoreError::Unreadable),
    }
}

/// As [`read`], for replies of megabytes that carry `T` or an error and never both: read once if all is well.
pub(crate) fn read_large<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> Result<T, StoreError> {
    serde_json::from_slice(payload).or_else(|_| read(payload))
}

/// The store's word on a publish.
#[derive(Debug, Deserialize)]
pub(crate) struct PubAck {
    pub(crate) seq: u64,
}

impl Bus {
    /// Publishes to a stream and waits for its ack.
    pub(crate) async fn store(
        &self,
        subject: String,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<PubAck, StoreError> {
        let reply = self.ask(subject, headers, payload, BROKER_TIMEOUT).await?;
        read(&reply.payload)
    }

    /// Calls the store's API and returns its unread reply; `call` follows `$JS.API.`.
    pub(crate) async fn api(&self, call: String, payload: Bytes) -> Result<Bytes, StoreError> {
        let reply = self.ask(format!("$JS.API.{call}"), HeaderMap::new(), payload, BROKER_TIMEOUT).await?;
        Ok(reply.payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_conflict_codes_count() {
        for code in [10071, 10164] {
            let reply = format!(r#"{{"error":{{"code":400,"err_code":{code},"description":"no"}}}}"#);
            let Err(StoreError::Refused(refusal)) = read::<PubAck>(reply.as_bytes()) else { panic!("{reply}") };
            assert!(refusal.is_conflict() && !refusal.is_full());
        }
    }

    #[test]
    fn a_full_stream_is_known_by_its_code() {
        let reply = br#"{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"C","seq":0}"#;
        assert!(matches!(read::<PubAck>(reply), Err(StoreError::Refused(refusal)) if refusal.is_full()));
    }
}
