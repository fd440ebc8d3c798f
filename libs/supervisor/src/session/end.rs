//! Why a session, or an attempt to have one, ended.

use std::fmt;

use tonic::{Code, Status};

#[derive(Debug)]
pub(crate) enum End {
    /// This side was asked to stop.
    Stopped,
    /// The bridge, or the way to it, said so.
    Refused(Status),
    /// It has nothing to begin with: what it asked for before connecting was answered so.
    NotConfigured(Status),
    /// The bridge cannot be reached.
    Unreachable(tonic::transport::Error),
    /// The bridge hands the sandbox over to the one at this address.
    Redirected(String),
    /// The bridge did something that the protocol does not allow, or did not do what it demands.
    Broken(&'static str),
}

impl fmt::Display for End {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => formatter.write_str("stopped"),
            Self::Refused(status) | Self::NotConfigured(status) => {
                write!(formatter, "{:?}: {}", status.code(), status.message())
            }
            Self::Unreachable(error) => write!(formatter, "the bridge cannot be reached: {error}"),
            Self::Redirected(address) => write!(formatter, "redirected to {address}"),
            Self::Broken(what) => formatter.write_str(what),
        }
    }
}

impl End {
    /// Whether there is nothing more to say, or nobody to say it to.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Stopped => true,
            Self::Refused(status) => status.code() == Code::FailedPrecondition,
            // The main process may have ended meanwhile: that can be told without a configuration.
            Self::NotConfigured(_) => false,
            Self::Unreachable(_) | Self::Redirected(_) | Self::Broken(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refused_session_says_that_no_exit_will_be_heard() {
        let refusal = || Status::failed_precondition("another instance");
        assert!(End::Refused(refusal()).is_final());
        assert!(!End::NotConfigured(refusal()).is_final());
        assert!(!End::Refused(Status::unavailable("later")).is_final());
    }
}
