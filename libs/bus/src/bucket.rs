//! Buckets: the newest value of each key, changed by compare-and-set.
//!
//! Reads go to the stream's leader, since a replica may lag behind. A revision serves compare-and-set within one life of
//! the bucket and nothing else (D1).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_MESSAGE_TTL};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use roadstead_proto::bucket::Bucket as Name;
use serde::Deserialize;
use serde_json::json;

use crate::Bus;
use crate::jetstream::{StoreError, read_large};
use crate::request::RequestError;

pub use crate::leader::ReadError;

pub(crate) const OPERATION: &str = "KV-Operation";
pub(crate) const MARKER_REASON: &str = "Nats-Marker-Reason";
const ROLLUP: &str = "Nats-Rollup";

/// The store's count at which a key was last written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// Nothing was ever written, or nothing is left of it.
    pub const NONE: Self = Self(0);
}

/// What stands under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// None if the key is absent, was purged, or ran out.
    pub value: Option<Bytes>,
    /// What an update has to expect. An absent value may have a revision: that of the mark its end left.
    pub revision: Revision,
}

/// Why a bucket was not, or perhaps not, changed.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// The key is not at the expected revision, or another write to it is on its way. Not stored: read again.
    #[error("the key was changed meanwhile")]
    Conflict,
    /// The bucket does not exist, or not yet. Not stored.
    #[error("the bucket is missing")]
    Missing,
    /// The value is too large or the key malformed. Not stored.
    #[error("the value cannot be stored: {0}")]
    Unstorable(String),
    /// No ack in time: whether it was stored is unknown, and it may still be on its way.
    #[error("whether the value was stored is unknown")]
    Unknown,
}

/// A bucket, seen through one connection.
#[derive(Debug, Clone)]
pub struct Bucket {
    bus: Bus,
    name: Name,
}

impl Bucket {
    /// The bucket of that name. Nothing is asked of the broker yet.
    #[must_use]
    pub fn new(bus: &Bus, name: Name) -> Self {
        Self { bus: bus.clone(), name }
    }

    /// What stands under `key`, from the leader: never older than any write that was acked before.
    ///
    /// # Errors
    ///
    /// See [`ReadError`].
    pub async fn read_from_leader(&self, key: &str) -> Result<Entry, ReadError> {
        let call = format!("STREAM.MSG.GET.{}", self.name.stream());
        let body = json!({ "last_by_subj": self.subject(key) }).to_string();
        let reply = self.bus.api(call, body.into()).await.map_err(|error| self.bus.unread(error))?;
        match read_large::<Stored<'_>>(&reply) {
            Ok(stored) => stored.message.entry(),
            Err(StoreError::Refused(refusal)) if refusal.is_no_message() => {
                Ok(Entry { value: None, revision: Revision::NONE })
            }
            Err(error) => Err(self.bus.unread(error)),
        }
    }

    /// Stores `value` if the key is at `expected` ([`Revision::NONE`]: if nothing is there) and returns its revision.
    ///
    /// # Errors
    ///
    /// See [`UpdateError`].
    pub async fn update(&self, key: &str, value: Bytes, expected: Revision) -> Result<Revision, UpdateError> {
        self.write(key, expecting(expected), value).await
    }

    /// As [`Bucket::update`]; the value runs out after `ttl`, in whole seconds and at least one. Followers of the feed
    /// are told.
    ///
    /// # Errors
    ///
    /// See [`UpdateError`].
    pub async fn update_with_ttl(
        &self,
        key: &str,
        value: Bytes,
        expected: Revision,
        ttl: Duration,
    ) -> Result<Revision, UpdateError> {
        self.write(key, with_ttl(expecting(expected), ttl), value).await
    }

    /// Stores `value` whatever stands there; it runs out after `ttl`. For keys with a single writer, such as beats.
    ///
    /// # Errors
    ///
    /// See [`UpdateError`], but for the conflict.
    pub async fn put_with_ttl(&self, key: &str, value: Bytes, ttl: Duration) -> Result<Revision, UpdateError> {
        self.write(key, with_ttl(HeaderMap::new(), ttl), value).await
    }

    /// Removes the value if the key is at `expected`. A mark tells followers and stays for [`Name::MARKER_AGE`].
    ///
    /// # Errors
    ///
    /// See [`UpdateError`].
    pub async fn purge(&self, key: &str, expected: Revision) -> Result<Revision, UpdateError> {
        let mut headers = with_ttl(expecting(expected), Name::MARKER_AGE);
        headers.insert(OPERATION, "PURGE");
        headers.insert(ROLLUP, "sub");
        self.write(key, headers, Bytes::new()).await
    }

    /// One page of keys for the sweeper, in the order of the alphabet, beginning after `offset` of them: those that hold
    /// a value and those that hold a mark. An empty page is the end. Keys that come and go meanwhile may be missed or
    /// told twice.
    ///
    /// # Errors
    ///
    /// See [`ReadError`].
    pub async fn keys(&self, offset: usize) -> Result<Vec<String>, ReadError> {
        let body = json!({ "subjects_filter": self.subject(">"), "offset": offset }).to_string();
        let info: Info = self.bus.stream_info(&self.name.stream(), body.into()).await?;
        let prefix = self.subject("");
        let keys = info.state.subjects.into_keys();
        Ok(keys.filter_map(|subject| subject.strip_prefix(&prefix).map(str::to_owned)).collect())
    }

    /// The newest revision in the bucket and the time at which it was created, as the broker tells it: a bucket that was
    /// lost or rolled back shows a lower revision or another creation time.
    ///
    /// # Errors
    ///
    /// See [`ReadError`].
    pub async fn incarnation(&self) -> Result<Incarnation, ReadError> {
        let info: Info = self.bus.stream_info(&self.name.stream(), Bytes::new()).await?;
        Ok(Incarnation { created: info.created, last: Revision(info.state.last_seq) })
    }

    async fn write(&self, key: &str, headers: HeaderMap, value: Bytes) -> Result<Revision, UpdateError> {
        match self.bus.store(self.subject(key), headers, value).await {
            Ok(ack) => Ok(Revision(ack.seq)),
            Err(StoreError::Refused(refusal)) if refusal.is_conflict() => Err(UpdateError::Conflict),
            Err(StoreError::Refused(refusal)) => Err(UpdateError::Unstorable(refusal.to_string())),
            Err(StoreError::Request(RequestError::NoResponders)) => {
                self.bus.report_missing();
                Err(UpdateError::Missing)
            }
            Err(StoreError::Request(RequestError::Unsendable(error))) => {
                Err(UpdateError::Unstorable(error.to_string()))
            }
            Err(StoreError::Request(_) | StoreError::Unreadable(_)) => Err(UpdateError::Unknown),
        }
    }

    fn subject(&self, key: &str) -> String {
        format!("$KV.{}.{key}", self.name.name())
    }
}

/// Which life of a bucket this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incarnation {
    /// When the bucket was created, as the broker writes it.
    pub created: String,
    /// The newest revision.
    pub last: Revision,
}

fn expecting(revision: Revision) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, revision.0.to_string());
    headers
}

fn with_ttl(mut headers: HeaderMap, ttl: Duration) -> HeaderMap {
    // The broker counts whole seconds and refuses none.
    headers.insert(NATS_MESSAGE_TTL, ttl.as_secs().max(1).to_string());
    headers
}

#[derive(Deserialize)]
struct Stored<'a> {
    #[serde(borrow)]
    message: StoredMessage<'a>,
}

#[derive(Deserialize)]
struct StoredMessage<'a> {
    seq: u64,
    #[serde(default, borrow)]
    hdrs: Cow<'a, str>,
    #[serde(default, borrow)]
    data: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Info {
    created: String,
    state: InfoState,
}

#[derive(Deserialize)]
struct InfoState {
    last_seq: u64,
    /// Sorted, so that pages are in one order.
    #[serde(default)]
    subjects: BTreeMap<String, u64>,
}

impl StoredMessage<'_> {
    fn entry(&self) -> Result<Entry, ReadError> {
        let unreadable = |error: base64::DecodeError| ReadError::Refused(error.to_string());
        let headers = STANDARD.decode(self.hdrs.as_bytes()).map_err(unreadable)?;
        let headers = String::from_utf8_lossy(&headers);
        let revision = Revision(self.seq);
        if headers.lines().any(|line| line.starts_with(OPERATION) || line.starts_with(MARKER_REASON)) {
            return Ok(Entry { value: None, revision });
        }
        let value = STANDARD.decode(self.data.as_bytes()).map_err(unreadable)?;
        Ok(Entry { value: Some(value.into()), revision })
    }
}
