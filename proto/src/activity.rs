//! The stream `ACTIVITY`: log lines and platform events of sandboxes, one a message (D8).
//!
//! Both kinds are in one stream, because its sequence is the one order in which they are shown and resumed. The broker
//! bounds each subject alike, so of events, too, 2,000 are kept; that 50 of them are shown is up to the reader.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use uuid::Uuid;

use crate::subject::{Malformed, tokens_after, uuid};

/// Messages that are kept of one subject: lines of a sandbox, and likewise its events.
pub const LINES: u32 = 2000;
/// Events of a sandbox that are shown when none is resumed after.
pub const EVENTS: u32 = 50;
/// How long a message is kept at most.
pub const AGE: Duration = Duration::from_secs(24 * 3600);
/// Largest encoded line that is stored, in bytes: a sandbox has at most `LINES` of them.
pub const LINE_BYTES: usize = 4096;
/// All messages together, in bytes. Beyond it the oldest of the fleet go first, whoever wrote them: no one sandbox can push
/// out what others wrote, but some 130 can whose logs are full of the longest lines.
pub const TOTAL_BYTES: i64 = 1 << 30;

/// Every subject of the stream.
pub const SUBJECTS: &str = "roadstead.activity.>";
/// Every subject on which the broker repeats what it stored.
pub const WHOLE_FEED: &str = "roadstead.feed.activity.>";

const PREFIX: &str = "roadstead.activity.";
const FEED_PREFIX: &str = "roadstead.feed.activity.";

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A log line; published by bridges.
    Log,
    /// A platform event; published by admission.
    Event,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Log, Self::Event];

    /// The last token of the subject.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Event => "event",
        }
    }

    /// Every subject of this kind: what its publishers may publish to.
    #[must_use]
    pub fn subjects(self) -> String {
        format!("{PREFIX}*.{}", self.name())
    }
}

/// A subject of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Activity {
    pub sandbox_id: Uuid,
    pub kind: Kind,
}

impl Activity {
    /// Both subjects of a sandbox.
    #[must_use]
    pub fn of_sandbox(id: Uuid) -> String {
        format!("{PREFIX}{id}.*")
    }

    /// Reads a subject of the republished feed.
    ///
    /// # Errors
    ///
    /// If it is none.
    pub fn from_feed(subject: &str) -> Result<Self, Malformed> {
        Self::read(subject, FEED_PREFIX)
    }

    fn read(subject: &str, prefix: &str) -> Result<Self, Malformed> {
        let [sandbox_id, kind] = tokens_after(subject, prefix)?;
        let kind = Kind::ALL.into_iter().find(|known| known.name() == kind).ok_or(Malformed)?;
        Ok(Self { sandbox_id: uuid(sandbox_id)?, kind })
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{PREFIX}{}.{}", self.sandbox_id, self.kind.name())
    }
}

impl FromStr for Activity {
    type Err = Malformed;

    fn from_str(subject: &str) -> Result<Self, Malformed> {
        Self::read(subject, PREFIX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn subjects_survive_a_round_trip(id in any::<u128>(), kind in proptest::sample::select(&Kind::ALL[..])) {
            let activity = Activity { sandbox_id: Uuid::from_u128(id), kind };
            let subject = activity.to_string();
            prop_assert_eq!(subject.parse(), Ok(activity));
            let fed = subject.replace(PREFIX, FEED_PREFIX);
            prop_assert_eq!(Activity::from_feed(&fed), Ok(activity));
            prop_assert!(Activity::from_feed(&subject).is_err() && fed.parse::<Activity>().is_err());
        }

        #[test]
        fn other_text_is_refused(text in ".*") {
            prop_assert!(text.parse::<Activity>().is_err());
            prop_assert!(Activity::from_feed(&text).is_err());
        }
    }
}
