//! Why a session ends, what its supervisor is told, and what admission is.

use std::time::Duration;

use roadstead_door::status::{stopping, unavailable};
use tonic::Status;

use crate::own::foreign;

/// How long a supervisor that was asked to connect again has to do so before admission hears that it is gone.
pub const RETURN: Duration = Duration::from_secs(3);

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The supervisor ended it.
    Closed,
    /// The connection broke.
    Lost,
    /// No heartbeat of the supervisor came.
    Silent,
    /// The supervisor did not read what it was sent.
    Stalled,
    /// A later frame spoke for another sandbox.
    Foreign,
    /// A later frame was a second beginning.
    Repeated,
    /// A frame could not be read.
    Unreadable,
    /// Another session is the sandbox's now.
    Superseded,
    /// The sandbox stops, is deleted, or is gone.
    SandboxOver,
    /// The token with which it was opened has run out.
    TokenExpired,
    /// The token is of an earlier run of the sandbox.
    TokenRevoked,
    /// There is no configuration to begin with.
    NoConfiguration,
    /// The configuration cannot be opened with the keys of this process.
    Sealed,
    /// This process had been judged gone, and its sessions with it.
    JudgedGone,
    /// The database was restored to an earlier time: its row may know nothing of this session.
    Restored,
    /// The connection to the broker was closed.
    NoBroker,
    /// This process stops.
    Draining,
    /// Other bridges hold fewer sessions.
    Rebalanced,
}

impl End {
    /// Every reason.
    pub const ALL: [Self; 18] = [
        Self::Closed,
        Self::Lost,
        Self::Silent,
        Self::Stalled,
        Self::Foreign,
        Self::Repeated,
        Self::Unreadable,
        Self::Superseded,
        Self::SandboxOver,
        Self::TokenExpired,
        Self::TokenRevoked,
        Self::NoConfiguration,
        Self::Sealed,
        Self::JudgedGone,
        Self::Restored,
        Self::NoBroker,
        Self::Draining,
        Self::Rebalanced,
    ];

    /// A word for reports, logs and metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Lost => "lost",
            Self::Silent => "silent",
            Self::Stalled => "stalled",
            Self::Foreign => "foreign",
            Self::Repeated => "repeated",
            Self::Unreadable => "unreadable",
            Self::Superseded => "superseded",
            Self::SandboxOver => "sandbox_over",
            Self::TokenExpired => "token_expired",
            Self::TokenRevoked => "token_revoked",
            Self::NoConfiguration => "no_configuration",
            Self::Sealed => "sealed",
            Self::JudgedGone => "judged_gone",
            Self::Restored => "restored",
            Self::NoBroker => "no_broker",
            Self::Draining => "draining",
            Self::Rebalanced => "rebalanced",
        }
    }

    /// The last word to the supervisor.
    #[must_use]
    pub fn status(self) -> Status {
        match self {
            Self::Closed => Status::ok(""),
            Self::Lost => Status::cancelled("the connection broke"),
            Self::Silent => Status::aborted("no heartbeat came in time; connect again"),
            Self::Stalled => Status::aborted("the stream was not read; connect again"),
            Self::Foreign => foreign(),
            Self::Repeated => Status::invalid_argument("a session has one hello, its first message"),
            Self::Unreadable => Status::invalid_argument("a message could not be read"),
            Self::Superseded => Status::aborted("another session is the sandbox's now"),
            Self::SandboxOver => Status::failed_precondition("the sandbox stops, or is gone"),
            Self::TokenExpired => unavailable("the token of this session has expired; connect again with a fresh one"),
            Self::TokenRevoked => Status::unauthenticated("the token is of an earlier run of the sandbox"),
            Self::NoConfiguration => unavailable("the configuration cannot be had now; connect again"),
            Self::Sealed => unavailable("the configuration cannot be opened here; connect again"),
            Self::JudgedGone => unavailable("this process was out of touch; connect again"),
            Self::Restored => unavailable("the database was restored; connect again"),
            Self::NoBroker | Self::Draining => stopping(),
            Self::Rebalanced => unavailable("another bridge holds fewer sessions; connect to that one"),
        }
    }

    /// How long to wait before admission hears of the end: a supervisor that was asked to connect again takes its
    /// sandbox over by itself, and nobody need see it go.
    #[must_use]
    pub const fn patience(self) -> Duration {
        match self {
            Self::TokenExpired
            | Self::JudgedGone
            | Self::Restored
            | Self::NoBroker
            | Self::Draining
            | Self::Rebalanced => RETURN,
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn words_tell_reasons_apart() {
        assert_eq!(End::ALL.map(End::word).iter().collect::<BTreeSet<_>>().len(), End::ALL.len());
    }

    #[test]
    fn a_supervisor_that_should_return_is_waited_for_and_told_so() {
        for end in End::ALL {
            if !end.patience().is_zero() {
                assert_eq!(end.status().code(), tonic::Code::Unavailable, "{end:?}");
            }
        }
    }
}
