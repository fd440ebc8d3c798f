//! Refusals that a door gives on its own account.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use roadstead_proto::internal::ReadReply;
use roadstead_proto::internal::read_reply::Outcome;
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

/// Whether a read's answer, an encoded `ReadReply`, is the last word: all but that whoever answered cannot tell now, which
/// another replica may.
#[must_use]
pub fn is_final(reply: &Bytes) -> bool {
    match ReadReply::decode(reply.clone()).ok().and_then(|reply| reply.outcome) {
        Some(Outcome::Status(status)) => decode(&status).code() != Code::Unavailable,
        _ => true,
    }
}

/// A status as another role sent it, an encoded `google.rpc.Status`; `INTERNAL` if it cannot be read.
#[must_use]
pub fn decode(encoded: &[u8]) -> Status {
    status::from_bytes(encoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_word_that_one_cannot_answer_now_leaves_it_to_others() {
        let reply = |outcome| Bytes::from(ReadReply { outcome: Some(outcome) }.encode_to_vec());
        let refusal = |code| Outcome::Status(status::Status::new(code, "no").to_bytes().into());
        assert!(!is_final(&reply(refusal(Code::Unavailable))));
        assert!(is_final(&reply(refusal(Code::NotFound))));
        assert!(is_final(&reply(Outcome::Response(Bytes::new()))));
        assert!(is_final(&Bytes::from_static(b"what nobody can read")));
    }
}
