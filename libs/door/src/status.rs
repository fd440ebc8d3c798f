//! Refusals that a door gives on its own account.

use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// The domain of every reason that clients match.
pub const DOMAIN: &str = "openshell.nvidia.com";
/// When a client that was turned away for want of room should come back.
const RETRY: Duration = Duration::from_millis(250);

/// `RESOURCE_EXHAUSTED`: nothing was done, and a later attempt may find room.
#[must_use]
pub fn busy(message: &str) -> Status {
    Status::with_error_details(Code::ResourceExhausted, message, ErrorDetails::with_retry_info(Some(RETRY)))
}

/// `UNAVAILABLE`: nothing was done, and a later attempt may succeed.
#[must_use]
pub fn unavailable(message: &str) -> Status {
    Status::with_error_details(Code::Unavailable, message, ErrorDetails::with_retry_info(Some(RETRY)))
}

/// `INVALID_ARGUMENT` for one field of the request.
#[must_use]
pub fn invalid_field(field: &str, description: &str) -> Status {
    let mut details = ErrorDetails::with_bad_request_violation(field, description);
    details.set_error_info("INVALID_ARGUMENT", DOMAIN, []);
    Status::with_error_details(Code::InvalidArgument, format!("{field}: {description}"), details)
}

/// A status as another role sent it: an encoded `google.rpc.Status`.
///
/// One that cannot be read becomes `INTERNAL`.
#[must_use]
pub fn decode(encoded: &[u8]) -> Status {
    use prost::Message as _;
    match tonic_types::pb::Status::decode(encoded) {
        Ok(status) => Status::with_details(Code::from(status.code), status.message, encoded.to_vec().into()),
        Err(_) => Status::internal("an answer could not be read"),
    }
}
