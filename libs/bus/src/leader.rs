//! Reads that a stream's leader answers. A bucket is a stream as well.

use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::Bus;
use crate::jetstream::{StoreError, read};
use crate::request::RequestError;

/// Why a stream could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The stream does not exist, or not yet.
    #[error("the stream is missing")]
    Missing,
    /// No answer in time.
    #[error("the stream does not answer")]
    Unavailable,
    /// The store refused, or its reply cannot be read.
    #[error("the stream refused the read: {0}")]
    Refused(String),
}

impl Bus {
    /// How a stream stands, as far as `T` wants to know.
    pub(crate) async fn stream_info<T: DeserializeOwned>(&self, stream: &str, body: Bytes) -> Result<T, ReadError> {
        let reply = self.api(format!("STREAM.INFO.{stream}"), body).await.map_err(|error| self.unread(error))?;
        read(&reply).map_err(|error| self.unread(error))
    }

    /// What a failed call means for a reader. What is missing is reported.
    pub(crate) fn unread(&self, error: StoreError) -> ReadError {
        match error {
            StoreError::Refused(refusal) if refusal.is_missing() => {
                self.report_missing();
                ReadError::Missing
            }
            StoreError::Request(RequestError::TimedOut | RequestError::NoResponders | RequestError::Closed) => {
                ReadError::Unavailable
            }
            other => ReadError::Refused(other.to_string()),
        }
    }
}
