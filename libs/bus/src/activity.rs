//! The stream `ACTIVITY`, as its readers see it (D8): pages by sequence from any replica, single messages and the
//! stream's state from its leader. Nothing is left on the broker by a reader.

mod feed;

use std::collections::HashMap;
use std::time::Duration;

use async_nats::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::StreamExt as _;
use prost_types::Timestamp;
use roadstead_proto::activity::{Activity, Kind};
use roadstead_proto::cursor::Incarnation;
use roadstead_proto::stream::Stream;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;
use uuid::Uuid;

use crate::Bus;
use crate::jetstream::{StoreError, read};

pub use crate::leader::ReadError;
pub use feed::{Feed, News};

const SEQUENCE: &str = "Nats-Sequence";
const SUBJECT: &str = "Nats-Subject";
const TIME: &str = "Nats-Time-Stamp";
const PENDING: &str = "Nats-Num-Pending";
/// How long a whole page is waited for.
const PAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// Messages that are read together: those of one kind, or of both, of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subjects {
    pub sandbox_id: Uuid,
    /// Both kinds if none.
    pub kind: Option<Kind>,
}

/// How much a page may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub lines: usize,
    /// More than [`LINE_BYTES`](roadstead_proto::activity::LINE_BYTES), or a page may be empty.
    pub bytes: usize,
}

/// A message as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub sequence: u64,
    pub of: Activity,
    /// When the broker stored it.
    pub stored: Timestamp,
    /// An encoded `internal::ActivityLine`.
    pub payload: Bytes,
}

/// Messages by rising sequence, without a hole unless the oldest were trimmed meanwhile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    pub lines: Vec<Line>,
    /// How many there were in the stream from the first of these on.
    pub remaining: u64,
}

/// How the stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    pub incarnation: Incarnation,
    /// Oldest sequence of any sandbox that is still there.
    pub first: u64,
    /// Newest sequence that was ever given.
    pub last: u64,
}

impl Subjects {
    fn filter(self) -> String {
        let Self { sandbox_id, kind } = self;
        kind.map_or_else(|| Activity::of_sandbox(sandbox_id), |kind| Activity { sandbox_id, kind }.to_string())
    }
}

/// The stream's reader. Clones share the connection.
#[derive(Clone, Debug)]
pub struct Reader {
    bus: Bus,
}

impl Reader {
    /// A reader on this connection. Nothing is asked of the broker yet.
    #[must_use]
    pub fn new(bus: &Bus) -> Self {
        Self { bus: bus.clone() }
    }

    /// As many messages as fit, the first at `from` or later. Read from any replica, which may lag behind: a
    /// page that is not full does not prove that there is no more.
    ///
    /// # Errors
    ///
    /// See [`ReadError`].
    pub async fn page(&self, of: Subjects, from: u64, limit: Limit) -> Result<Page, ReadError> {
        let body = json!({
            "seq": from.max(1),
            "next_by_subj": of.filter(),
            "batch": limit.lines,
            "max_bytes": limit.bytes,
        });
        let inbox = self.bus.inbox().pull(self.bus.replies().number());
        let client = self.bus.client();
        let unavailable = |_| ReadError::Unavailable;
        let mut replies = client.subscribe(inbox.clone()).await.map_err(|_| ReadError::Unavailable)?;
        let call = format!("$JS.API.DIRECT.GET.{}", Stream::Activity.config().name);
        client
            .publish_with_reply(call, inbox, body.to_string().into())
            .await
            .map_err(|error| ReadError::Refused(error.to_string()))?;
        let mut page = Page::default();
        let deadline = Instant::now() + PAGE_TIMEOUT;
        loop {
            let reply = tokio::time::timeout_at(deadline, replies.next()).await.map_err(unavailable)?;
            let reply = reply.ok_or(ReadError::Unavailable)?;
            match reply.status.map(|status| status.as_u16()) {
                None => {}
                Some(NO_CONTENT | NOT_FOUND) => return Ok(page),
                Some(_) if reply.status == Some(StatusCode::NO_RESPONDERS) => {
                    self.bus.report_missing();
                    return Err(ReadError::Missing);
                }
                Some(code) => return Err(ReadError::Refused(format!("status {code}"))),
            }
            let (line, pending) = direct(reply.headers.as_ref(), reply.payload).ok_or_else(unreadable)?;
            if page.lines.is_empty() {
                page.remaining = pending + 1;
            }
            page.lines.push(line);
        }
    }

    /// The message at this place, from the leader; none if it is not there, or not any more.
    ///
    /// # Errors
    ///
    /// See [`ReadError`].
    pub async fn at(&self, sequence: u64) -> Result<Option<Line>, ReadError> {
        self.message(json!({ "seq": sequence })).await
    }

    /// The first message at `from` or later, from the leader.
    ///
    /// # Errors
    ///
    /// See [`ReadError`].
    pub async fn first(&self, of: Subjects, from: u64) -> Result<Option<Line>, ReadError> {
        self.message(json!({ "seq": from.max(1), "next_by_subj": of.filter() })).await
    }

    /// The oldest message of one kind, from the leader.
    ///
    /// # Errors
    ///
    /// See [`ReadError`].
    pub async fn oldest(&self, sandbox_id: Uuid, kind: Kind) -> Result<Option<Line>, ReadError> {
        self.first(Subjects { sandbox_id, kind: Some(kind) }, 1).await
    }

    /// How the stream stands, from the leader.
    ///
    /// # Errors
    ///
    /// See [`ReadError`].
    pub async fn state(&self) -> Result<State, ReadError> {
        let info = self.info(Bytes::new()).await?;
        let incarnation = Incarnation::created(&info.created);
        Ok(State { incarnation, first: info.state.first_seq, last: info.state.last_seq })
    }

    /// How many messages of each kind there are, from the leader; of a kind that is not asked for, none.
    ///
    /// # Errors
    ///
    /// See [`ReadError`].
    pub async fn counts(&self, of: Subjects) -> Result<[(Kind, u64); 2], ReadError> {
        let body = json!({ "subjects_filter": of.filter() }).to_string();
        let subjects = self.info(body.into()).await?.state.subjects;
        let count =
            |kind| subjects.get(&Activity { sandbox_id: of.sandbox_id, kind }.to_string()).copied().unwrap_or(0);
        Ok(Kind::ALL.map(|kind| (kind, count(kind))))
    }

    async fn info(&self, body: Bytes) -> Result<Info, ReadError> {
        self.bus.stream_info(Stream::Activity.config().name, body).await
    }

    async fn message(&self, body: serde_json::Value) -> Result<Option<Line>, ReadError> {
        let call = format!("STREAM.MSG.GET.{}", Stream::Activity.config().name);
        let reply = self.bus.api(call, body.to_string().into()).await.map_err(|error| self.bus.unread(error))?;
        match read::<Stored>(&reply) {
            Ok(Stored { message }) => message.line().map(Some).ok_or_else(unreadable),
            Err(StoreError::Refused(refusal)) if refusal.is_no_message() => Ok(None),
            Err(error) => Err(self.bus.unread(error)),
        }
    }
}

const NO_CONTENT: u16 = 204;
const NOT_FOUND: u16 = 404;

fn unreadable() -> ReadError {
    ReadError::Refused("a reply cannot be read".to_owned())
}

/// A message of a page, and how many come after it.
fn direct(headers: Option<&HeaderMap>, payload: Bytes) -> Option<(Line, u64)> {
    let header = |name: &str| headers?.get(name).map(|value| value.as_str());
    let line = Line {
        sequence: header(SEQUENCE)?.parse().ok()?,
        of: header(SUBJECT)?.parse().ok()?,
        stored: header(TIME)?.parse().ok()?,
        payload,
    };
    Some((line, header(PENDING)?.parse().ok()?))
}

#[derive(Deserialize)]
struct Stored {
    message: StoredMessage,
}

#[derive(Deserialize)]
struct StoredMessage {
    seq: u64,
    subject: String,
    time: String,
    #[serde(default)]
    data: String,
}

impl StoredMessage {
    fn line(self) -> Option<Line> {
        Some(Line {
            sequence: self.seq,
            of: self.subject.parse().ok()?,
            stored: self.time.parse().ok()?,
            payload: STANDARD.decode(self.data).ok()?.into(),
        })
    }
}

#[derive(Deserialize)]
struct Info {
    created: String,
    state: InfoState,
}

#[derive(Deserialize)]
struct InfoState {
    first_seq: u64,
    last_seq: u64,
    #[serde(default)]
    subjects: HashMap<String, u64>,
}
