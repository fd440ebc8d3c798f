//! Why a configuration is not handed out, and what the caller is told. Never an empty configuration instead.

use std::error::Error;
use std::time::Duration;

use roadstead_proto::sealing::OpenError;
use roadstead_service_kit::access::{ANOTHER_SANDBOX, Denied};
use roadstead_service_kit::sandbox_token::TokenError;
use roadstead_service_kit::status::{Code, Reason, Status};
use roadstead_store::StoreError;

use crate::build::BuildError;

/// When a caller should try again after a dependency was away.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Longest name that a message repeats, in characters.
const SHOWN: usize = 64;

/// Why a call is refused or failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("{field}: {description}")]
    Field { field: &'static str, description: &'static str },
    #[error("the request is not a message of this method")]
    Undecodable(#[from] prost::DecodeError),
    /// The door let through what may not come through it.
    #[error("this is answered to {0} only")]
    WrongDoor(&'static str),
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error("the sandbox token is not valid")]
    Token(#[from] TokenError),
    /// Not a token that the bridge has passed on.
    #[error("the sandbox token is not valid")]
    NotPassedOn(#[from] OpenError),
    /// A token of an earlier run of the sandbox.
    #[error("the sandbox token is not valid")]
    OldToken,
    #[error("{ANOTHER_SANDBOX}")]
    NotItself,
    #[error("{kind} '{}' does not exist", shown(name))]
    NotFound { kind: &'static str, name: String },
    #[error("the configuration cannot be built now; try again")]
    Unavailable(#[source] BuildError),
    #[error("the configuration cannot be built")]
    Broken(#[source] BuildError),
    #[error("the deadline has passed")]
    Late,
}

impl Refusal {
    pub(crate) const fn field(field: &'static str, description: &'static str) -> Self {
        Self::Field { field, description }
    }

    pub(crate) fn not_found(kind: &'static str, name: impl Into<String>) -> Self {
        Self::NotFound { kind, name: name.into() }
    }

    /// What the caller is told.
    pub(crate) fn status(&self) -> Status {
        let text = self.to_string();
        match self {
            Self::Field { field, description } => Status::invalid(field, description),
            Self::Undecodable(_) => Status::because(Reason::InvalidArgument, text),
            Self::WrongDoor(_) | Self::Denied(_) | Self::NotItself => Status::new(Code::PermissionDenied, text),
            Self::Token(_) | Self::NotPassedOn(_) | Self::OldToken => Status::new(Code::Unauthenticated, text),
            Self::NotFound { .. } => Status::new(Code::NotFound, text),
            Self::Unavailable(_) => Status::new(Code::Unavailable, text).retry_after(RETRY_AFTER),
            Self::Broken(_) => Status::new(Code::Internal, text),
            Self::Late => Status::new(Code::DeadlineExceeded, text),
        }
    }

    /// Logs what the caller is not told and an operator has to know.
    pub(crate) fn report(&self) {
        match self {
            Self::Broken(error) => tracing::error!(error = error as &dyn Error, "a configuration cannot be built"),
            Self::Unavailable(error) => {
                tracing::warn!(error = error as &dyn Error, "a configuration cannot be built now")
            }
            Self::Token(error) => tracing::debug!(%error, "a sandbox token was refused"),
            Self::NotPassedOn(error) => tracing::warn!(%error, "a sandbox token does not come from a bridge"),
            _ => {}
        }
    }
}

impl From<BuildError> for Refusal {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::Store(StoreError::Bug(_)) | BuildError::Credential(_) => Self::Broken(error),
            BuildError::Store(StoreError::Unavailable(_))
            | BuildError::Read(_)
            | BuildError::Write(_)
            | BuildError::WrongDatabase(_)
            | BuildError::Contended
            | BuildError::Stopping => Self::Unavailable(error),
        }
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        BuildError::from(error).into()
    }
}

fn shown(name: &str) -> String {
    name.chars().take(SHOWN).filter(|letter| !letter.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use tonic_types::StatusExt as _;

    use super::*;

    #[test]
    fn what_is_not_ready_is_unavailable_with_a_time_to_try_again() {
        for error in [BuildError::Contended, StoreError::Unavailable("away".into()).into()] {
            let status = tonic::Status::from(Refusal::from(error).status());
            assert_eq!(status.code(), Code::Unavailable);
            assert_eq!(status.get_details_retry_info().unwrap().retry_delay, Some(RETRY_AFTER));
        }
    }

    #[test]
    fn what_cannot_mend_itself_is_internal_and_says_nothing_of_its_cause() {
        for error in [BuildError::Credential(OpenError::UnknownKey), StoreError::Bug("SELECT".into()).into()] {
            let status = Refusal::from(error).status();
            assert_eq!((status.code(), status.message()), (Code::Internal, "the configuration cannot be built"));
        }
    }

    #[test]
    fn a_long_name_is_not_repeated_in_full() {
        let refusal = Refusal::not_found("sandbox", "x".repeat(9999));
        assert!(refusal.status().message().len() < 100);
    }
}
