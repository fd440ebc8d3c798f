//! Why a session, or an attempt to have one, ended.

use std::fmt;

use tonic::{Code, Status};

#[derive(Debug)]
pub(crate) enum End {
    /// This side was asked to stop.
    Stopped,
    /// The bridge, or the way to it, said so.
    Refused(Status),
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
            Self::Refused(status) => write!(formatter, "{:?}: {}", status.code(), status.message()),
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
            Self::Unreachable(_) | Self::Redirected(_) | Self::Broken(_) => false,
        }
    }
}
