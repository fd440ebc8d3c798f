//! What can go wrong, by what the caller is to do about it.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::SystemTime;

use deadpool_postgres::PoolError;
use roadstead_proto::api::v1;
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, SqlState};

use crate::fields::Malformed;
use crate::flight::Failed;

/// The cause below one of our errors, for the log.
pub type Source = Box<dyn StdError + Send + Sync>;

/// Code that `count_claim` raises.
const OVER_QUOTA: &str = "RS001";
/// Code that `must_hit` raises.
const NOT_HIT: &str = "RS002";

/// Why a flight of a mutation did not do its work. Unless it says otherwise, nothing was committed.
#[derive(Debug, thiserror::Error)]
pub enum FlightError {
    /// Another transaction holds this command or its claim: put back.
    #[error("another transaction holds the ledger's {:?} row", .0.on)]
    Busy(Busy),
    /// Deadlock, serialization failure or a row that stayed locked: once more, bounded.
    #[error("rows are contended")]
    Retry(#[source] Source),
    /// A name is taken.
    #[error("taken: {0:?}")]
    Conflict(Unique),
    /// The caller holds as many claims as it may.
    #[error("the caller holds as many claims as it may")]
    QuotaExceeded,
    /// A row was not as the decision took it to be: decide again.
    #[error("a write missed the row it was decided for")]
    Guard(#[source] Source),
    /// The connection was lost with the COMMIT on its way: the outcome is not known. The same command again finds out.
    #[error("the connection was lost, the outcome is not known")]
    Lost(#[source] Source),
    /// Postgres cannot be used now; nothing was committed.
    #[error("Postgres cannot be used now")]
    Unavailable(#[source] Source),
    /// A statement, a row or a call that cannot be right.
    #[error("fault in the store")]
    Bug(#[source] Source),
}

/// What was found out before the ledger turned out to be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    pub on: LedgerRow,
    /// Postgres's clock, cut to milliseconds.
    pub now: SystemTime,
    /// Today's role of `Locks::subject`, read without a lock: enough to refuse, and to tell a duplicate that its
    /// outcome is uncertain.
    pub role: Option<v1::WorkspaceRole>,
}

/// A row of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerRow {
    /// The same command is at work elsewhere: put back until its deadline.
    Command,
    /// Another command with the same request id is at work.
    Claim,
}

/// What has to be unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unique {
    WorkspaceName,
    SandboxName,
    ProviderName,
    Member,
    TemplateName,
}

/// Why something was not read, or not done outside a mutation.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Postgres cannot be used now. A write may or may not have been done; every such write may be repeated.
    #[error("Postgres cannot be used now")]
    Unavailable(#[source] Source),
    /// A statement, a row or a call that cannot be right.
    #[error("fault in the store")]
    Bug(#[source] Source),
}

/// A fault of the caller or of this library, in words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Fault(pub(crate) &'static str);

/// No answer in time, or none any more.
#[derive(Debug, thiserror::Error)]
#[error("no answer")]
struct Silence;

/// Which flight failed: only the second one may have committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    First,
    Second,
}

impl FlightError {
    /// The meaning of a failure, except that of a held ledger, which only the first flight can tell.
    pub(crate) fn of(failed: Failed, stage: Stage) -> Self {
        let broken = |source| match stage {
            Stage::First => Self::Unavailable(source),
            Stage::Second => Self::Lost(source),
        };
        match failed {
            Failed::Statement { error, .. } => Self::of_statement(error),
            Failed::Broken(None) => broken(Silence.into()),
            Failed::Broken(Some(error)) if is_ours(&error) => Self::Bug(error.into()),
            Failed::Broken(Some(error)) => broken(error.into()),
        }
    }

    fn of_statement(error: Error) -> Self {
        let Some(told) = error.as_db_error() else { return Self::Bug(error.into()) };
        match told.code() {
            code if code.code() == OVER_QUOTA => Self::QuotaExceeded,
            code if code.code() == NOT_HIT => Self::Guard(error.into()),
            &SqlState::UNIQUE_VIOLATION => unique(told).map_or_else(|| Self::Guard(error.into()), Self::Conflict),
            &SqlState::FOREIGN_KEY_VIOLATION | &SqlState::CHECK_VIOLATION => Self::Guard(error.into()),
            code if is_contention(code) => Self::Retry(error.into()),
            code if is_outage(code) => Self::Unavailable(error.into()),
            _ => Self::Bug(error.into()),
        }
    }
}

impl StoreError {
    /// The same error again and again, for each of those who asked together.
    pub fn repeated(self) -> impl Iterator<Item = Self> {
        let (kind, source): (fn(Source) -> Self, _) = match self {
            Self::Unavailable(source) => (Self::Unavailable, source),
            Self::Bug(source) => (Self::Bug, source),
        };
        let source: Arc<dyn StdError + Send + Sync> = source.into();
        std::iter::repeat_with(move || kind(Arc::clone(&source).into()))
    }

    pub(crate) fn of(failed: Failed) -> Self {
        match failed {
            Failed::Broken(None) => Self::Unavailable(Silence.into()),
            Failed::Broken(Some(error)) if is_ours(&error) => Self::Bug(error.into()),
            Failed::Broken(Some(error)) => Self::Unavailable(error.into()),
            Failed::Statement { error, .. } => match error.code() {
                Some(code) if is_contention(code) || is_outage(code) => Self::Unavailable(error.into()),
                _ => Self::Bug(error.into()),
            },
        }
    }
}

impl From<StoreError> for FlightError {
    /// For what happens before a transaction has begun.
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(source) => Self::Unavailable(source),
            StoreError::Bug(source) => Self::Bug(source),
        }
    }
}

impl From<PoolError> for StoreError {
    fn from(error: PoolError) -> Self {
        Self::Unavailable(error.into())
    }
}

impl From<Malformed> for StoreError {
    fn from(malformed: Malformed) -> Self {
        Self::Bug(malformed.into())
    }
}

impl From<Malformed> for FlightError {
    fn from(malformed: Malformed) -> Self {
        Self::Bug(malformed.into())
    }
}

impl From<Fault> for FlightError {
    fn from(fault: Fault) -> Self {
        Self::Bug(fault.into())
    }
}

/// Whether a failed request was refused by the driver, or by Postgres as no sound statement.
fn is_ours(error: &Error) -> bool {
    match error.as_db_error() {
        Some(told) => told.code().code().starts_with("42"),
        None => !error.is_closed() && !error.source().is_some_and(|source| source.is::<std::io::Error>()),
    }
}

pub(crate) fn is_lock_timeout(error: &Error) -> bool {
    error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

fn is_contention(code: &SqlState) -> bool {
    [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE, SqlState::LOCK_NOT_AVAILABLE].contains(code)
}

/// Classes for connections, resources, operators and the machine, and statements that took too long.
fn is_outage(code: &SqlState) -> bool {
    ["08", "53", "57", "58", "25"].iter().any(|class| code.code().starts_with(class))
}

fn unique(told: &DbError) -> Option<Unique> {
    Some(match told.constraint()? {
        "workspace_name" => Unique::WorkspaceName,
        "sandbox_name" => Unique::SandboxName,
        "provider_name" => Unique::ProviderName,
        "member_subject" => Unique::Member,
        "workload_template_name" => Unique::TemplateName,
        _ => return None,
    })
}
