//! How a supervisor treats what it receives. Tests switch it while it runs.

use std::fmt;
use std::sync::Arc;

use roadstead_proto::api::v1::ConfigApplyOutcome;

use crate::observed::Frame;

/// How updates are treated.
#[derive(Clone, Default)]
pub enum Behaviour {
    /// Apply and say so.
    #[default]
    Apply,
    /// Apply nothing, and answer this to every update.
    Answer(Answer),
    /// Apply nothing, and answer nothing.
    Silent,
    /// Read nothing more from the stream; heartbeats still go out.
    StopReading,
    /// Decide for each update.
    Decide(Arc<dyn Fn(&Frame) -> Decision + Send + Sync>),
}

/// What to do with one update.
#[derive(Clone, Debug)]
pub enum Decision {
    Apply,
    Answer(Answer),
    Silent,
}

/// An answer that a script gives in place of applying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub outcome: ConfigApplyOutcome,
    pub code: String,
    pub message: String,
    pub retryable: bool,
}

impl Answer {
    /// A refusal that is not worth another attempt with the same content.
    #[must_use]
    pub fn refusal(message: impl Into<String>) -> Self {
        Self {
            outcome: ConfigApplyOutcome::FailedRetainedLastKnownGood,
            code: "REJECTED".to_owned(),
            message: message.into(),
            retryable: false,
        }
    }

    /// Only an outcome.
    #[must_use]
    pub const fn only(outcome: ConfigApplyOutcome) -> Self {
        Self { outcome, code: String::new(), message: String::new(), retryable: false }
    }
}

impl Behaviour {
    /// Refuses every update with this message.
    #[must_use]
    pub fn reject(message: impl Into<String>) -> Self {
        Self::Answer(Answer::refusal(message))
    }

    pub(crate) fn decide(&self, frame: &Frame) -> Decision {
        match self {
            // One that stopped reading may still be handed an update that had arrived before.
            Self::Apply => Decision::Apply,
            Self::Silent | Self::StopReading => Decision::Silent,
            Self::Answer(answer) => Decision::Answer(answer.clone()),
            Self::Decide(decide) => decide(frame),
        }
    }

    pub(crate) const fn reads(&self) -> bool {
        !matches!(self, Self::StopReading)
    }
}

impl fmt::Debug for Behaviour {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apply => formatter.write_str("Apply"),
            Self::Answer(answer) => formatter.debug_tuple("Answer").field(answer).finish(),
            Self::Silent => formatter.write_str("Silent"),
            Self::StopReading => formatter.write_str("StopReading"),
            Self::Decide(_) => formatter.write_str("Decide"),
        }
    }
}
