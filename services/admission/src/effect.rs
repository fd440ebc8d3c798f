//! Effects outside Postgres, as values: an operation decides that one is needed, the executor has it once its command
//! stands as started, and the operation decides what its end means.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use secrecy::SecretSlice;

use crate::refusal::Refusal;

/// An effect outside Postgres, decided on. Nothing happens until it is performed.
pub trait Effect: fmt::Debug + Send + Sync {
    /// Has the effect. Called at most once for a command, with no transaction open; dropped when its time is over. A
    /// process may be stopped between its last look at the clock and what it sends, so a request should also tell the
    /// other side until when it is to be executed, if that side can be told.
    fn perform(&self) -> Pin<Box<dyn Future<Output = Ended> + Send + '_>>;
}

impl PartialEq for dyn Effect {
    /// An effect equals itself alone.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(self, other)
    }
}

/// How an effect ended.
#[derive(Debug)]
pub enum Ended {
    /// It happened. What it brought goes to [`Operation::complete`](crate::operation::Operation::complete) alone.
    Happened(SecretSlice<u8>),
    /// It is certain that nothing happened and nothing will: the request id is free again.
    DidNotHappen(Refusal),
    /// Nobody here knows. The command stays started until an operator settles it.
    Unknown(&'static str),
}

impl Ended {
    /// A word for logs and metrics.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Happened(_) => "happened",
            Self::DidNotHappen(_) => "did_not_happen",
            Self::Unknown(_) => "unknown",
        }
    }
}
