//! The reasons that statuses give.

use tonic::Code;

/// What `ErrorInfo` says; a client decides by it what to do, as docs/errors.md tells it.
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
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::InvalidArgument,
        Self::ResourceVersionConflict,
        Self::ProfileSourceUnavailable,
        Self::RequestIdPayloadMismatch,
        Self::RequestOutcomeUncertain,
        Self::RequestReplayUnavailable,
        Self::RequestStreamUnavailable,
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
            Self::ResourceVersionConflict => Code::Aborted,
            Self::ProfileSourceUnavailable => Code::Unavailable,
            Self::RequestIdPayloadMismatch
            | Self::RequestOutcomeUncertain
            | Self::RequestReplayUnavailable
            | Self::RequestStreamUnavailable => Code::FailedPrecondition,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of the table that names reasons: two cells of code, a name and its code.
    fn rows(page: &str) -> Vec<(&str, &str)> {
        page.lines()
            .filter_map(|line| {
                let mut cells = line.strip_prefix("| `")?.split("` | `");
                Some((cells.next()?, cells.next()?.split('`').next()?))
            })
            .filter(|(name, _)| name.bytes().all(|letter| letter.is_ascii_uppercase() || letter == b'_'))
            .collect()
    }

    #[test]
    fn the_page_for_clients_explains_exactly_these_reasons_with_their_codes() {
        let page = include_str!("../../../../docs/errors.md");
        let code = |reason: Reason| format!("{:?}", reason.code()).to_ascii_lowercase();
        let explained: Vec<_> =
            rows(page).into_iter().map(|(name, code)| (name, code.replace('_', "").to_ascii_lowercase())).collect();
        for reason in Reason::ALL {
            let found = explained.iter().filter(|row| **row == (reason.name(), code(reason))).count();
            assert_eq!(found, 1, "{} with its code stands once in docs/errors.md", reason.name());
        }
        assert_eq!(
            explained.len(),
            Reason::ALL.len(),
            "docs/errors.md explains a reason that is not told: {explained:?}"
        );
    }
}
