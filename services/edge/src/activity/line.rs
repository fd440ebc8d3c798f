//! A line or event, ready to be sent to all who want it.

use bytes::Bytes;
use prost::Message as _;
use prost_types::Timestamp;
use roadstead_bus::activity;
use roadstead_proto::activity::Kind;
use roadstead_proto::api::v1::SandboxStreamEvent;
use roadstead_proto::api::v1::sandbox_stream_event::Payload;
use roadstead_proto::cursor::{Cursor, Incarnation};
use roadstead_proto::internal::ActivityLine;
use roadstead_proto::internal::activity_line::Content;

/// One line or event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) sequence: u64,
    pub(crate) kind: Kind,
    /// When the broker stored it.
    pub(crate) stored: Timestamp,
    pub(crate) content: Content,
    /// The encoded event with its cursor.
    pub(crate) event: Bytes,
}

impl Line {
    /// Reads what is stored; none if it is no line of that kind, which is reported.
    pub(crate) fn of(stored: activity::Line, incarnation: Incarnation) -> Option<Self> {
        let activity::Line { sequence, of, stored, payload } = stored;
        let content = ActivityLine::decode(payload).ok().and_then(|line| line.content);
        let (kind, payload) = match &content {
            Some(Content::Log(log)) => (Kind::Log, Payload::Log(log.clone())),
            Some(Content::Event(event)) => (Kind::Event, Payload::Event(event.clone())),
            None => return unreadable(sequence),
        };
        if kind != of.kind {
            return unreadable(sequence);
        }
        let cursor = Cursor { incarnation, sequence, stored_nanos: nanos(&stored) }.encode(of.sandbox_id);
        let event = SandboxStreamEvent { payload: Some(payload), cursor }.encode_to_vec().into();
        Some(Self { sequence, kind, stored, content: content?, event })
    }

    /// When it happened, as its writer says.
    pub(crate) fn happened(&self) -> Option<&Timestamp> {
        match &self.content {
            Content::Log(log) => log.event_time.as_ref(),
            Content::Event(event) => event.event_time.as_ref(),
        }
    }
}

fn unreadable(sequence: u64) -> Option<Line> {
    tracing::error!(sequence, "a line of activity cannot be read; left out");
    None
}

/// Nanoseconds since 1970.
pub(crate) fn nanos(time: &Timestamp) -> i64 {
    time.seconds.saturating_mul(1_000_000_000).saturating_add(time.nanos.into())
}
