//! The reasons that statuses give.

use tonic::Code;

/// What `ErrorInfo` says; a client decides by it what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The request is wrong by itself; `BadRequest` says where.
    InvalidArgument,
    /// The object has changed: read it again, decide again.
    ResourceVersionConflict,
    /// The source of provider profiles is away; `RetryInfo` says when to try again.
    ProfileSourceUnavailable,
    /// The request id was used before, for something else.
    RequestIdPayloadMismatch,
    /// The request id was admitted before, and no success is known.
    RequestOutcomeUncertain,
    /// What the request id was used for cannot be shown again, or its record cannot be verified.
    RequestReplayUnavailable,
    /// The request id's command has run, and its output cannot be played again.
    RequestStreamUnavailable,
    /// A report came from a session that is not, or no longer, the sandbox's. Only between roles.
    SessionSuperseded,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::InvalidArgument,
        Self::ResourceVersionConflict,
        Self::ProfileSourceUnavailable,
        Self::RequestIdPayloadMismatch,
        Self::RequestOutcomeUncertain,
        Self::RequestReplayUnavailable,
        Self::RequestStreamUnavailable,
        Self::SessionSuperseded,
    ];

    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::ResourceVersionConflict => "RESOURCE_VERSION_CONFLICT",
            Self::ProfileSourceUnavailable => "PROFILE_SOURCE_UNAVAILABLE",
            Self::RequestIdPayloadMismatch => "REQUEST_ID_PAYLOAD_MISMATCH",
            Self::RequestOutcomeUncertain => "REQUEST_OUTCOME_UNCERTAIN",
            Self::RequestReplayUnavailable => "REQUEST_REPLAY_UNAVAILABLE",
            Self::RequestStreamUnavailable => "REQUEST_STREAM_UNAVAILABLE",
            Self::SessionSuperseded => "SESSION_SUPERSEDED",
        }
    }

    /// The reason of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }

    /// The code that goes with it.
    #[must_use]
    pub const fn code(self) -> Code {
        match self {
            Self::InvalidArgument => Code::InvalidArgument,
            Self::ResourceVersionConflict | Self::SessionSuperseded => Code::Aborted,
            Self::ProfileSourceUnavailable => Code::Unavailable,
            Self::RequestIdPayloadMismatch
            | Self::RequestOutcomeUncertain
            | Self::RequestReplayUnavailable
            | Self::RequestStreamUnavailable => Code::FailedPrecondition,
        }
    }
}
