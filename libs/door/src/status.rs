//! Refusals that a door gives on its own account.

use std::time::Duration;

use roadstead_service_kit::status;
use tonic::{Code, Status};

/// When a client that was turned away should come back.
const RETRY: Duration = Duration::from_millis(250);
/// Over how much more than that the clients of a process that stops are spread.
const RETURN_SPREAD: Duration = Duration::from_secs(1);

/// `RESOURCE_EXHAUSTED`: nothing was done, and a later attempt may find room.
#[must_use]
pub fn busy(message: &str) -> Status {
    status::Status::new(Code::ResourceExhausted, message).retry_after(RETRY).into()
}

/// `UNAVAILABLE`: nothing was done, and a later attempt may succeed.
#[must_use]
pub fn unavailable(message: &str) -> Status {
    status::Status::new(Code::Unavailable, message).retry_after(RETRY).into()
}

/// `UNAVAILABLE`: this process stops, and another one serves. Clients are told to wait for different times, so that those
/// of a process that stopped do not come to the next in one wave.
#[must_use]
pub fn stopping() -> Status {
    let retry = RETRY + RETURN_SPREAD.mul_f64(rand::random());
    status::Status::new(Code::Unavailable, "this process stops; connect again").retry_after(retry).into()
}

/// A status as another role sent it, an encoded `google.rpc.Status`; `INTERNAL` if it cannot be read.
#[must_use]
pub fn decode(encoded: &[u8]) -> Status {
    status::from_bytes(encoded)
}
