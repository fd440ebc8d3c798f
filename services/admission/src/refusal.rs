//! Why a command is refused, and the one map from that to the status a client sees (behaviour 1.8).
//!
//! A message says what to do next. It repeats names only, cut to a bounded length, and never a value.

use std::fmt;
use std::time::Duration;

use roadstead_policy::Class;
use roadstead_service_kit::access;
use roadstead_service_kit::status::{Code, Reason, Status};

/// Longest name that a message repeats, in characters.
const SHOWN: usize = 64;

/// Kinds of objects that a refusal names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    Workspace,
    Member,
    Sandbox,
    Provider,
    Template,
    Service,
    PolicyRevision,
    Command,
}

/// A refusal. What it tells is committed before it is told (D3).
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    #[error("{field}: {problem}")]
    Invalid { field: String, problem: String },
    #[error("{object} {} does not exist", Shown(.name))]
    NotFound { object: Object, name: String },
    #[error("{object} {} exists already; choose another name", Shown(.name))]
    AlreadyExists { object: Object, name: String },
    #[error("{0}")]
    Precondition(String),
    #[error("the object has changed and is at version {current} now; read it again and decide again")]
    VersionConflict { current: u64 },
    #[error("{0}; read the state again and retry")]
    Aborted(&'static str),
    #[error("{0}")]
    Denied(String),
    #[error("{0}")]
    Unauthenticated(&'static str),
    #[error("{0}")]
    Exhausted(String),
    #[error("{0} is not served yet")]
    Unserved(&'static str),
    #[error("the deadline passed before the call was begun; nothing was done")]
    DeadlinePassed,
    #[error("the request id was used with another request; use a new one")]
    PayloadMismatch,
    #[error("a call with this request id was begun and its outcome is not known; read the state before trying again")]
    OutcomeUncertain,
    #[error("the answer of the call with this request id cannot be shown: {0}; this call did nothing")]
    ReplayUnavailable(&'static str),
    #[error("the call had its effect, as an operator found out; its answer is not known; read the state")]
    AnswerUnknown,
    #[error("this session is not the sandbox's; close it and connect again")]
    NotTheSession,
    #[error("the call could not be completed now; nothing was done, retry")]
    Unavailable,
    #[error("the call failed inside the control plane; nothing was done")]
    Internal,
}

impl Refusal {
    /// A field of the request is wrong.
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), problem: problem.into() }
    }

    /// The object of that name is not there.
    pub fn not_found(object: Object, name: impl Into<String>) -> Self {
        Self::NotFound { object, name: name.into() }
    }

    /// The name is taken.
    pub fn already_exists(object: Object, name: impl Into<String>) -> Self {
        Self::AlreadyExists { object, name: name.into() }
    }

    /// The state does not allow it.
    pub fn precondition(problem: impl Into<String>) -> Self {
        Self::Precondition(problem.into())
    }

    /// The status that a client sees.
    #[must_use]
    pub fn status(&self) -> Status {
        let message = self.to_string();
        match self {
            Self::Invalid { field, problem } => Status::invalid(field, problem),
            Self::VersionConflict { current } => Status::because(Reason::ResourceVersionConflict, message)
                .metadata("recovery", "REFRESH_STATE")
                .metadata("current_resource_version", current.to_string()),
            Self::PayloadMismatch => Status::because(Reason::RequestIdPayloadMismatch, message),
            Self::OutcomeUncertain => Status::because(Reason::RequestOutcomeUncertain, message),
            Self::ReplayUnavailable(_) | Self::AnswerUnknown => {
                Status::because(Reason::RequestReplayUnavailable, message)
            }
            Self::Unavailable => Status::new(self.code(), message).retry_after(Duration::from_secs(1)),
            Self::NotFound { .. }
            | Self::AlreadyExists { .. }
            | Self::Precondition(_)
            | Self::Aborted(_)
            | Self::Denied(_)
            | Self::Unauthenticated(_)
            | Self::Exhausted(_)
            | Self::Unserved(_)
            | Self::DeadlinePassed
            | Self::NotTheSession
            | Self::Internal => Status::new(self.code(), message),
        }
    }

    const fn code(&self) -> Code {
        match self {
            Self::Invalid { .. } => Code::InvalidArgument,
            Self::NotFound { .. } => Code::NotFound,
            Self::AlreadyExists { .. } => Code::AlreadyExists,
            Self::VersionConflict { .. } | Self::Aborted(_) | Self::NotTheSession => Code::Aborted,
            Self::Denied(_) => Code::PermissionDenied,
            Self::Unauthenticated(_) => Code::Unauthenticated,
            Self::Exhausted(_) => Code::ResourceExhausted,
            Self::Unserved(_) => Code::Unimplemented,
            Self::DeadlinePassed => Code::DeadlineExceeded,
            Self::Precondition(_)
            | Self::PayloadMismatch
            | Self::OutcomeUncertain
            | Self::ReplayUnavailable(_)
            | Self::AnswerUnknown => Code::FailedPrecondition,
            Self::Unavailable => Code::Unavailable,
            Self::Internal => Code::Internal,
        }
    }

    /// A word for logs and metrics.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "invalid",
            Self::NotFound { .. } => "not_found",
            Self::AlreadyExists { .. } => "already_exists",
            Self::Precondition(_) => "precondition",
            Self::VersionConflict { .. } => "version_conflict",
            Self::Aborted(_) => "aborted",
            Self::Denied(_) => "denied",
            Self::Unauthenticated(_) => "unauthenticated",
            Self::Exhausted(_) => "exhausted",
            Self::Unserved(_) => "unserved",
            Self::DeadlinePassed => "deadline_passed",
            Self::PayloadMismatch => "payload_mismatch",
            Self::OutcomeUncertain => "outcome_uncertain",
            Self::ReplayUnavailable(_) => "replay_unavailable",
            Self::AnswerUnknown => "answer_unknown",
            Self::NotTheSession => "not_the_session",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }
}

impl From<roadstead_policy::Refusal> for Refusal {
    fn from(refusal: roadstead_policy::Refusal) -> Self {
        match refusal.class() {
            Class::Invalid => Self::invalid(refusal.field, refusal.reason.to_string()),
            Class::Precondition => Self::Precondition(refusal.to_string()),
        }
    }
}

impl From<access::Denied> for Refusal {
    fn from(denied: access::Denied) -> Self {
        Self::Denied(denied.to_string())
    }
}

impl fmt::Display for Object {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Workspace => "workspace",
            Self::Member => "member",
            Self::Sandbox => "sandbox",
            Self::Provider => "provider",
            Self::Template => "template",
            Self::Service => "service",
            Self::PolicyRevision => "policy revision",
            Self::Command => "command",
        })
    }
}

/// A name as messages repeat it: quoted, without control characters, cut.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |letter: char| if letter.is_control() { '\u{fffd}' } else { letter };
        write!(formatter, "'{}'", self.0.chars().take(SHOWN).map(plain).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_message_is_bounded_and_shows_no_control_character(name in ".{0,3000}") {
            let message = Refusal::not_found(Object::Sandbox, name).to_string();
            prop_assert!(message.chars().count() < 120);
            prop_assert!(!message.contains(char::is_control));
        }
    }
}
