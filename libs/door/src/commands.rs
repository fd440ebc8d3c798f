//! The way of a command to admission and back (D2): sealed, counted against its caller's share, carried through whether
//! or not the client still listens.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use roadstead_bus::door::{CallError, CommandClient};
use roadstead_proto::internal::{self, Answer, Sealed};
use roadstead_proto::sealing::DoorSeal;
use tokio_util::task::TaskTracker;
use tonic::Status;
use tonic::metadata::{MetadataMap, MetadataValue};
use uuid::Uuid;

use crate::auth::Principal;
use crate::call::Reply;
use crate::deadline::Deadline;
use crate::share::{Place, Share};
use crate::status::{busy, decode, unavailable};

/// Initial metadata of an answer that an earlier command with the same request id has earned.
pub const REPLAYED: &str = "openshell-replayed";

/// Sends commands. Clones share everything.
#[derive(Clone, Debug)]
pub struct Commands {
    client: CommandClient,
    seal: Arc<DoorSeal>,
    share: Share,
    calls: TaskTracker,
}

/// A command before it is sealed.
#[derive(Debug)]
pub struct Command {
    /// Subject of the queue it goes to.
    pub subject: String,
    /// Name of the method, or of the report.
    pub method: &'static str,
    /// Who asks.
    pub principal: Principal,
    /// The request exactly as received.
    pub request: Bytes,
    /// When the outcome is of no more use to the caller.
    pub deadline: Deadline,
    /// W3C trace context; empty if there is none.
    pub traceparent: String,
}

impl Commands {
    /// Sends through `client`, sealed by `seal`; each caller may have `share` commands in flight.
    #[must_use]
    pub fn new(client: CommandClient, seal: DoorSeal, share: usize) -> Self {
        Self { client, seal: Arc::new(seal), share: Share::new(share), calls: TaskTracker::new() }
    }

    /// Sends a command and waits for its answer. If this future is dropped the command is carried through all the same.
    ///
    /// # Errors
    ///
    /// Admission's refusal; `RESOURCE_EXHAUSTED` or `UNAVAILABLE` if nothing was done; `DEADLINE_EXCEEDED` if the
    /// outcome is unknown, and then it says so.
    pub async fn call(&self, command: Command) -> Result<Reply, Status> {
        let place = self
            .share
            .take(command.principal.caller())
            .ok_or_else(|| busy("too many mutations of this caller are in flight; nothing was done"))?;
        let carried = self.clone().carry(Uuid::now_v7(), command, place);
        self.calls.spawn(carried).await.unwrap_or_else(|_| Err(Status::internal("an internal error")))
    }

    /// Waits until no command is in flight.
    pub async fn settled(&self) {
        self.calls.close();
        self.calls.wait().await;
        self.calls.reopen();
    }

    async fn carry(self, id: Uuid, command: Command, _place: Place) -> Result<Reply, Status> {
        let Command { subject, method, principal, request, deadline, traceparent } = command;
        let envelope = internal::Command {
            command_id: id.to_string(),
            method: method.to_owned(),
            principal: Some(principal.for_command()),
            request,
            deadline: Some(deadline.time.into()),
            traceparent,
        };
        let sealed = self.seal.seal_command(id, &envelope.encode_to_vec()).encode_to_vec();
        let answer = self.client.call(&subject, id, sealed.into(), deadline.instant).await;
        let answer = answer.map_err(|error| {
            tracing::debug!(command_id = %id, %error, "no answer");
            unanswered(error)
        })?;
        self.open(id, &answer)
    }

    fn open(&self, id: Uuid, sealed: &[u8]) -> Result<Reply, Status> {
        let unreadable = |reason: &dyn std::fmt::Display| {
            tracing::error!(command_id = %id, %reason, "an answer could not be read");
            Status::internal("an answer could not be read; the outcome is unknown")
        };
        let sealed = Sealed::decode(sealed).map_err(|error| unreadable(&error))?;
        let opened = self.seal.open_answer(id, &sealed).map_err(|error| unreadable(&error))?;
        let answer = Answer::decode(opened).map_err(|error| unreadable(&error))?;
        reply(answer)
    }
}

/// What the caller is told.
fn reply(answer: Answer) -> Result<Reply, Status> {
    use internal::answer::Outcome;
    match answer.outcome {
        Some(Outcome::Response(message)) => {
            let mut metadata = MetadataMap::new();
            if answer.replayed {
                metadata.insert(REPLAYED, MetadataValue::from_static("true"));
            }
            Ok(Reply { message, metadata })
        }
        Some(Outcome::Status(status)) => Err(decode(&status)),
        None => Err(Status::internal("an answer could not be read; the outcome is unknown")),
    }
}

/// What a caller is told of a command without an answer.
fn unanswered(error: CallError) -> Status {
    match error {
        CallError::Full => busy("too many mutations are waiting; nothing was done"),
        CallError::Unavailable => unavailable("mutations cannot be taken now; nothing was done"),
        CallError::OutcomeUnknown => Status::deadline_exceeded(
            "no answer in time: the outcome is unknown; retry with the same request_id to learn it",
        ),
    }
}

#[cfg(test)]
mod tests {
    use roadstead_service_kit::status::Status as RichStatus;
    use tonic::Code;
    use tonic_types::StatusExt as _;

    use super::*;

    #[test]
    fn what_was_not_done_may_be_tried_again_and_what_is_unknown_is_said_to_be() {
        for (error, code) in [(CallError::Full, Code::ResourceExhausted), (CallError::Unavailable, Code::Unavailable)] {
            let status = unanswered(error);
            assert_eq!(status.code(), code);
            assert!(status.message().ends_with("nothing was done"));
            assert!(status.get_details_retry_info().is_some());
        }
        let unknown = unanswered(CallError::OutcomeUnknown);
        assert_eq!(unknown.code(), Code::DeadlineExceeded);
        assert!(unknown.message().contains("outcome is unknown"));
    }

    #[test]
    fn a_replayed_answer_is_marked_and_a_refusal_keeps_its_details() {
        use internal::answer::Outcome;
        let answer = |outcome, replayed| Answer { outcome: Some(outcome), replayed, ..Default::default() };
        let replayed = reply(answer(Outcome::Response(Bytes::from_static(b"x")), true)).unwrap();
        assert_eq!(replayed.metadata.get(REPLAYED).unwrap(), "true");
        assert!(reply(answer(Outcome::Response(Bytes::new()), false)).unwrap().metadata.is_empty());

        let refused = RichStatus::invalid("name", "is too long").to_bytes();
        let status = reply(answer(Outcome::Status(refused.into()), false)).unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "name: is too long"));
        assert_eq!(status.get_details_bad_request().unwrap().field_violations[0].field, "name");
        assert_eq!(reply(Answer::default()).unwrap_err().code(), Code::Internal);
    }
}
