//! The public status of a refused or failed call: code, message and `google.rpc` details, as bytes for the ledger and
//! as a gRPC status for the wire.

mod reason;

use std::collections::HashMap;
use std::time::Duration;

use prost::Message as _;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

pub use reason::Reason;

/// Domain of every `ErrorInfo`.
pub const DOMAIN: &str = "openshell.nvidia.com";
/// Longest message, in bytes; the rest is cut off.
pub const MAX_MESSAGE_BYTES: usize = 512;
/// Most field violations that are told.
const MAX_VIOLATIONS: usize = 32;
/// The longest delay that clients accept.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(315_576_000_000);

/// A status in the making. Messages are the caller's: they hold no secret and echo no authored value.
#[derive(Clone, Debug)]
pub struct RichStatus {
    code: Code,
    message: String,
    details: ErrorDetails,
}

/// Bytes that should be an encoded `google.rpc.Status` of an error and are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an encoded error status")]
pub struct NotAStatus;

impl RichStatus {
    /// A status without details.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: bounded(message.into()), details: ErrorDetails::new() }
    }

    /// A status for a reason, with the reason's code and its `ErrorInfo`.
    #[must_use]
    pub fn because(reason: Reason, message: impl Into<String>) -> Self {
        Self::new(reason.code(), message).reason(reason)
    }

    /// `INVALID_ARGUMENT` for one field of the request, with its reason and `BadRequest`.
    #[must_use]
    pub fn invalid(field: impl Into<String>, description: impl Into<String>) -> Self {
        let (field, description) = (field.into(), bounded(description.into()));
        let message = if field.is_empty() { description.clone() } else { format!("{field}: {description}") };
        Self::because(Reason::InvalidArgument, message).violation(field, description)
    }

    /// Adds the `ErrorInfo` of a reason.
    #[must_use]
    pub fn reason(mut self, reason: Reason) -> Self {
        self.details.set_error_info(reason.name(), DOMAIN, HashMap::new());
        self
    }

    /// Adds a field violation; those beyond the 32nd are left out.
    #[must_use]
    pub fn violation(mut self, field: impl Into<String>, description: impl Into<String>) -> Self {
        if self.details.bad_request().map_or(0, |bad| bad.field_violations.len()) < MAX_VIOLATIONS {
            self.details.add_bad_request_violation(bounded(field.into()), bounded(description.into()));
        }
        self
    }

    /// Says when to try again.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.details.set_retry_info(Some(delay.min(MAX_RETRY_DELAY)));
        self
    }

    /// The code.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.code
    }

    /// The message as it will be told.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// An encoded `google.rpc.Status`.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        Status::from(self.clone()).details().to_vec()
    }
}

impl From<RichStatus> for Status {
    fn from(rich: RichStatus) -> Self {
        // Repeats code and message in the details, without which the SDK ignores them.
        Self::with_error_details(rich.code, rich.message, rich.details)
    }
}

/// The gRPC status that the bytes of [`RichStatus::to_bytes`] stand for.
///
/// # Errors
/// [`NotAStatus`], also for an `OK`.
pub fn from_bytes(bytes: &[u8]) -> Result<Status, NotAStatus> {
    let inner = tonic_types::Status::decode(bytes).map_err(|_| NotAStatus)?;
    match Code::from_i32(inner.code) {
        Code::Ok => Err(NotAStatus),
        // Also for a number that is no code: then inner and outer code differ, and the details are of no use.
        code => Ok(Status::with_details(code, inner.message, bytes.to_vec().into())),
    }
}

/// The encoded `google.rpc.Status` of any gRPC status: its own details if it has some that say the same.
#[must_use]
pub fn to_bytes(status: &Status) -> Vec<u8> {
    let agrees = |inner: tonic_types::Status| inner.code == status.code() as i32 && inner.message == status.message();
    if tonic_types::Status::decode(status.details()).is_ok_and(agrees) {
        return status.details().to_vec();
    }
    RichStatus::new(status.code(), status.message()).to_bytes()
}

/// The reason a status gives, if it is one of ours.
#[must_use]
pub fn reason_of(status: &Status) -> Option<Reason> {
    let info = status.get_details_error_info()?;
    if info.domain == DOMAIN { Reason::from_name(&info.reason) } else { None }
}

/// Cuts a text to [`MAX_MESSAGE_BYTES`], between characters.
fn bounded(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_MESSAGE_BYTES));
    text
}
