//! The public status of a refused or failed call: code, message and `google.rpc` details, as bytes for the ledger and
//! as a gRPC status for the wire.

mod reason;

use std::time::Duration;

use prost::Message as _;
use tonic_types::{ErrorDetails, ErrorInfo, StatusExt as _};

pub use reason::Reason;
pub use tonic::Code;

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
pub struct Status {
    code: Code,
    message: String,
    details: ErrorDetails,
}

impl Status {
    /// A status without details. The message is cut to [`MAX_MESSAGE_BYTES`].
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
    pub fn invalid(field: &str, description: &str) -> Self {
        Self::because(Reason::InvalidArgument, format!("{field}: {description}")).violation(field, description)
    }

    /// Adds the `ErrorInfo` of a reason.
    #[must_use]
    pub fn reason(mut self, reason: Reason) -> Self {
        let metadata = self.details.error_info().map(|info| info.metadata.clone()).unwrap_or_default();
        self.details.set_error_info(reason.name(), DOMAIN, metadata);
        self
    }

    /// Adds a value to the `ErrorInfo`; does nothing without a reason.
    #[must_use]
    pub fn metadata(mut self, key: &str, value: impl Into<String>) -> Self {
        if let Some(ErrorInfo { reason, domain, mut metadata }) = self.details.error_info().cloned() {
            metadata.insert(key.to_owned(), bounded(value.into()));
            self.details.set_error_info(reason, domain, metadata);
        }
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
        tonic::Status::from(self.clone()).details().to_vec()
    }
}

impl From<Status> for tonic::Status {
    fn from(status: Status) -> Self {
        // Repeats code and message in the details, without which the SDK ignores them.
        Self::with_error_details(status.code, status.message, status.details)
    }
}

/// The gRPC status that the bytes of [`Status::to_bytes`] stand for. What is no encoded error becomes `INTERNAL`.
#[must_use]
pub fn from_bytes(bytes: &[u8]) -> tonic::Status {
    match tonic_types::pb::Status::decode(bytes) {
        Ok(inner) if is_error_code(inner.code) => {
            tonic::Status::with_details(inner.code.into(), inner.message, bytes.to_vec().into())
        }
        _ => tonic::Status::internal("the answer could not be read"),
    }
}

/// The encoded `google.rpc.Status` of any gRPC status: its own details if they say the same as it does.
#[must_use]
pub fn to_bytes(status: &tonic::Status) -> Vec<u8> {
    let (code, message) = (status.code() as i32, status.message());
    let agrees = |inner: tonic_types::pb::Status| inner.code == code && inner.message == message;
    if tonic_types::pb::Status::decode(status.details()).is_ok_and(agrees) {
        return status.details().to_vec();
    }
    Status::new(status.code(), message).to_bytes()
}

/// The reason a status gives, if it is one of ours.
#[must_use]
pub fn reason_of(status: &tonic::Status) -> Option<Reason> {
    let info = status.get_details_error_info()?;
    if info.domain == DOMAIN { Reason::from_name(&info.reason) } else { None }
}

/// Whether the number stands for a code, and not for `OK`.
fn is_error_code(code: i32) -> bool {
    (1..=Code::Unauthenticated as i32).contains(&code)
}

/// Cuts a text to [`MAX_MESSAGE_BYTES`], between characters.
fn bounded(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_MESSAGE_BYTES));
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn inner(status: &tonic::Status) -> tonic_types::pb::Status {
        tonic_types::pb::Status::decode(status.details()).unwrap()
    }

    #[test]
    fn the_details_repeat_code_and_message() {
        let status = tonic::Status::from(Status::new(Code::NotFound, "sandbox does not exist"));
        assert_eq!((inner(&status).code, inner(&status).message.as_str()), (5, "sandbox does not exist"));
    }

    #[test]
    fn an_invalid_field_has_reason_and_violation() {
        let status = tonic::Status::from(Status::invalid("request_id", "must be a UUID"));
        assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "request_id: must be a UUID"));
        assert_eq!(reason_of(&status), Some(Reason::InvalidArgument));
        let bad = status.get_details_bad_request().unwrap();
        let [violation] = bad.field_violations.as_slice() else { panic!("one violation") };
        assert_eq!((violation.field.as_str(), violation.description.as_str()), ("request_id", "must be a UUID"));
    }

    #[test]
    fn a_conflict_says_how_to_recover() {
        let conflict = Status::because(Reason::ResourceVersionConflict, "changed")
            .metadata("recovery", "REFRESH_STATE")
            .retry_after(Duration::from_secs(1));
        let status = tonic::Status::from(conflict);
        let info = status.get_details_error_info().unwrap();
        assert_eq!((info.domain.as_str(), info.reason.as_str()), (DOMAIN, "RESOURCE_VERSION_CONFLICT"));
        assert_eq!(info.metadata["recovery"], "REFRESH_STATE");
        assert_eq!(status.get_details_retry_info().unwrap().retry_delay, Some(Duration::from_secs(1)));
        assert_eq!(status.code(), Code::Aborted);
    }

    #[test]
    fn every_reason_is_found_by_its_name() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from_name(reason.name()), Some(reason));
            let status = tonic::Status::from(Status::because(reason, "because"));
            assert_eq!((reason_of(&status), status.code()), (Some(reason), reason.code()));
        }
    }

    #[test]
    fn a_reason_of_another_domain_is_none_of_ours() {
        let mut details = ErrorDetails::new();
        details.set_error_info("INVALID_ARGUMENT", "example.com", []);
        assert_eq!(reason_of(&tonic::Status::with_error_details(Code::InvalidArgument, "", details)), None);
    }

    #[test]
    fn what_is_no_error_becomes_internal() {
        let ok = tonic_types::pb::Status { code: 0, message: String::new(), details: vec![] }.encode_to_vec();
        let odd = tonic_types::pb::Status { code: 99, message: "odd".to_owned(), details: vec![] }.encode_to_vec();
        for bytes in [&b""[..], b"garbage", &ok, &odd] {
            assert_eq!(from_bytes(bytes).code(), Code::Internal);
        }
    }

    #[test]
    fn a_status_from_elsewhere_gets_details_that_agree() {
        let plain = tonic::Status::unavailable("away");
        assert_eq!(from_bytes(&to_bytes(&plain)).message(), "away");
        let disagreeing = tonic::Status::with_details(Code::Aborted, "outer", to_bytes(&plain).into());
        assert_eq!(from_bytes(&to_bytes(&disagreeing)).code(), Code::Aborted);
    }

    #[test]
    fn violations_are_bounded() {
        let status = (0..100)
            .fold(Status::new(Code::InvalidArgument, ""), |status, at| status.violation(format!("field{at}"), "wrong"));
        let status = tonic::Status::from(status);
        assert_eq!(status.get_details_bad_request().unwrap().field_violations.len(), MAX_VIOLATIONS);
    }

    proptest! {
        #[test]
        fn bytes_and_back_says_the_same(code in 1..=16i32, message in ".{0,300}", field in ".{0,300}") {
            let status = Status::new(Code::from(code), message).violation(field, "wrong");
            let sent = tonic::Status::from(status.clone());
            let told = from_bytes(&status.to_bytes());
            prop_assert!(told.message().len() <= MAX_MESSAGE_BYTES);
            prop_assert_eq!((told.code(), told.message()), (sent.code(), sent.message()));
            prop_assert_eq!(told.details(), sent.details());
            prop_assert_eq!(to_bytes(&told), told.details());
        }
    }
}
