//! Streams and durable consumers as plain data (design section 3). `bus` turns them into broker configuration.

use std::time::Duration;

use crate::activity;

/// A stream that is not a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    Commands,
    Reports,
    Changes,
    Dirty,
    Activity,
}

/// How a stream keeps its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// A message goes when it is acked. At its limit the stream refuses.
    Queue,
    /// A message goes when it is acked. One message a subject: a newer one replaces it. At a limit the stream refuses.
    LatestQueue,
    /// One message a subject, until `max_age`. At a limit the stream refuses.
    Latest,
    /// So many messages a subject, until `max_age`; read by sequence.
    Newest(u32),
}

/// Limits of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    pub name: &'static str,
    /// All subjects of the stream.
    pub subjects: &'static str,
    pub retention: Retention,
    /// None: no bound but the subjects themselves.
    pub max_messages: Option<i64>,
    pub max_age: Option<Duration>,
    /// All messages together; beyond it the oldest go.
    pub max_bytes: Option<i64>,
    /// Largest message with its headers. None: what the broker takes.
    pub max_message: Option<i32>,
    /// Subjects that are repeated as they are stored, and where.
    pub feed: Option<(&'static str, &'static str)>,
}

impl Stream {
    /// All streams.
    pub const ALL: [Self; 5] = [Self::Commands, Self::Reports, Self::Changes, Self::Dirty, Self::Activity];

    /// The stream's limits.
    #[must_use]
    pub const fn config(self) -> StreamConfig {
        match self {
            Self::Commands => queue("COMMANDS", "roadstead.command.*"),
            Self::Reports => queue("REPORTS", "roadstead.report.*"),
            Self::Changes => StreamConfig {
                name: "CHANGES",
                subjects: "roadstead.change.*.*.*",
                retention: Retention::Latest,
                max_messages: None,
                max_age: Some(Duration::from_secs(3600)),
                max_bytes: None,
                max_message: None,
                feed: None,
            },
            Self::Dirty => StreamConfig {
                name: "DIRTY",
                subjects: "roadstead.dirty.*.*.*",
                retention: Retention::LatestQueue,
                max_messages: None,
                max_age: None,
                max_bytes: None,
                max_message: None,
                feed: None,
            },
            Self::Activity => StreamConfig {
                name: "ACTIVITY",
                subjects: "roadstead.activity.*.*",
                retention: Retention::Newest(activity::LINES),
                max_messages: None,
                max_age: Some(activity::AGE),
                max_bytes: Some(activity::TOTAL_BYTES),
                // The publishers cut lines; this holds for one that does not.
                max_message: Some(activity::LINE_BYTES as i32 + 512),
                feed: Some((activity::SUBJECTS, activity::WHOLE_FEED)),
            },
        }
    }
}

/// Longer than the longest deadline, so that a message outlives every caller that waits for it.
const QUEUE_AGE: Duration = Duration::from_secs(150);
const QUEUE_MESSAGES: i64 = 10_000;

const fn queue(name: &'static str, subjects: &'static str) -> StreamConfig {
    StreamConfig {
        name,
        subjects,
        retention: Retention::Queue,
        max_messages: Some(QUEUE_MESSAGES),
        max_age: Some(QUEUE_AGE),
        max_bytes: None,
        max_message: None,
        feed: None,
    }
}

/// A durable consumer, shared by all replicas of the role that pulls from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Consumer {
    /// Admission's, on `COMMANDS`.
    Commands,
    /// Admission's, on `REPORTS`.
    Reports,
    /// Watch's, on `CHANGES`: what it projects.
    Projection,
    /// Config-snapshot's, on `CHANGES`: what affects many sandboxes.
    Expansion,
    /// Config-snapshot's, on `DIRTY`.
    DirtyOne,
    /// Config-snapshot's, on `DIRTY`.
    DirtyFleet,
}

/// Settings of a consumer. Acks are explicit, deliveries unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerConfig {
    pub stream: Stream,
    pub name: &'static str,
    pub filters: &'static [&'static str],
    /// Silence after which a message is taken from its holder.
    pub ack_wait: Duration,
    /// All replicas together.
    pub max_ack_pending: i64,
}

impl Consumer {
    /// All consumers.
    pub const ALL: [Self; 6] =
        [Self::Commands, Self::Reports, Self::Projection, Self::Expansion, Self::DirtyOne, Self::DirtyFleet];

    /// The consumer's settings.
    #[must_use]
    pub const fn config(self) -> ConsumerConfig {
        let (stream, name, filters, max_ack_pending): (_, _, &[&str], _) = match self {
            Self::Commands => (Stream::Commands, "admission-commands", &["roadstead.command.*"], 4096),
            Self::Reports => (Stream::Reports, "admission-reports", &["roadstead.report.*"], 4096),
            Self::Projection => (
                Stream::Changes,
                "watch-projection",
                &["roadstead.change.sandbox.*.*", "roadstead.change.workspace.*.*", "roadstead.change.member.*.*"],
                1024,
            ),
            // Two at a time, so that repeated marks of one object coalesce while it is expanded (D4).
            Self::Expansion => (
                Stream::Changes,
                "config-snapshot-expansion",
                &["roadstead.change.provider.*.*", "roadstead.change.global.*.*"],
                2,
            ),
            Self::DirtyOne => (Stream::Dirty, "config-snapshot-one", &["roadstead.dirty.one.*.*"], 1024),
            // Each replica has as many in hand as it takes to let workspaces take turns.
            Self::DirtyFleet => (Stream::Dirty, "config-snapshot-fleet", &["roadstead.dirty.fleet.*.*"], 4096),
        };
        ConsumerConfig { stream, name, filters, ack_wait: Duration::from_secs(5), max_ack_pending }
    }
}
