//! Why a read is refused, and what the caller is told.

use std::error::Error;
use std::time::Duration;

use roadstead_proto::method::Method;
use roadstead_proto::page_token::InvalidPageToken;
use roadstead_service_kit::access::Denied;
use roadstead_service_kit::status::{Reason, Status};
use roadstead_store::StoreError;
use tonic::Code;

/// When a caller should try again after the database did not answer.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Longest name that a message repeats, in characters.
const SHOWN: usize = 64;

/// Why a read is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("{field} {description}")]
    Field { field: &'static str, description: &'static str },
    #[error(transparent)]
    PageToken(#[from] InvalidPageToken),
    #[error("the request is not a message of this method")]
    Undecodable(#[from] prost::DecodeError),
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error("this is answered to users only")]
    NotAUser,
    #[error("{kind} '{}' does not exist", shown(name))]
    NotFound { kind: &'static str, name: String },
    #[error("the database does not answer; try again")]
    Unavailable(#[source] StoreError),
    #[error("an internal error")]
    Fault(#[source] StoreError),
    #[error("{0} is not answered here")]
    NotServed(Method),
    #[error("the deadline has passed")]
    Late,
}

impl Refusal {
    /// A field that breaks a rule.
    pub(crate) const fn field(field: &'static str, description: &'static str) -> Self {
        Self::Field { field, description }
    }

    pub(crate) fn not_found(kind: &'static str, name: &str) -> Self {
        Self::NotFound { kind, name: name.to_owned() }
    }

    /// What the caller is told.
    pub(crate) fn status(&self) -> Status {
        let text = self.to_string();
        match self {
            Self::Field { field, description } => Status::invalid(field, description),
            Self::PageToken(_) => Status::invalid("page_token", &text),
            Self::Undecodable(_) => Status::because(Reason::InvalidArgument, text),
            Self::Denied(_) | Self::NotAUser => Status::new(Code::PermissionDenied, text),
            Self::NotFound { .. } => Status::new(Code::NotFound, text),
            Self::Unavailable(_) => Status::new(Code::Unavailable, text).retry_after(RETRY_AFTER),
            Self::Fault(_) => Status::new(Code::Internal, text),
            Self::NotServed(_) => Status::new(Code::Unimplemented, text),
            Self::Late => Status::new(Code::DeadlineExceeded, text),
        }
    }
}

impl Refusal {
    /// Logs what the caller is not told and an operator has to know.
    pub(crate) fn report(&self, method: &str) {
        match self {
            Self::Unavailable(error) => tracing::warn!(method, error = error as &dyn Error, "a read failed for now"),
            Self::Fault(error) => tracing::error!(method, error = error as &dyn Error, "a read failed"),
            _ => {}
        }
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) => Self::Unavailable(error),
            StoreError::Bug(_) => Self::Fault(error),
        }
    }
}

fn shown(name: &str) -> String {
    name.chars().take(SHOWN).filter(|letter| !letter.is_control()).collect()
}
