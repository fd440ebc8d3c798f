//! Reads, answered by the watch and config-snapshot roles. A read has no effect, so one that got no answer is repeated.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use roadstead_bus::{Bus, RequestError};
use roadstead_door::deadline::Deadline;
use roadstead_door::status::{busy, decode, is_final, unavailable};
use roadstead_door::{Call, Reply};
use roadstead_proto::api::datamodel::WorkspaceSelector;
use roadstead_proto::api::v1::{GetSandboxRequest, SandboxResponse};
use roadstead_proto::internal::read_reply::Outcome;
use roadstead_proto::internal::{ReadReply, ReadRequest};
use roadstead_proto::method::Method;
use roadstead_proto::subject;
use tokio::time::Instant;
use tonic::{Code, Status};
use uuid::Uuid;

/// How long a read is tried while nobody serves it, or nobody answers: a process that is cut off refuses by then.
const BOUND: Duration = Duration::from_secs(5);
/// Attempts that may be answered with the word that there can be no answer now.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(100);

/// Asks whoever serves `subject`.
///
/// # Errors
///
/// What was answered; `UNAVAILABLE`, `RESOURCE_EXHAUSTED` or `DEADLINE_EXCEEDED` if nothing was.
pub(crate) async fn ask(bus: &Bus, subject: &str, call: &Call, request: Bytes) -> Result<Reply, Status> {
    // Nobody is to work on what is not waited for any more.
    let given_up = Deadline::after(BOUND.min(call.deadline.remaining()));
    let request = ReadRequest {
        principal: Some(call.principal()?.for_read()),
        request,
        deadline: Some(given_up.time.into()),
        traceparent: call.traceparent.clone(),
    };
    send(bus, subject, request.encode_to_vec().into(), call.deadline).await
}

/// The id behind a sandbox's name, if the caller may see it.
///
/// # Errors
///
/// As `GetSandbox`.
pub(crate) async fn sandbox_id(
    bus: &Bus,
    call: &Call,
    workspace_scope: Option<WorkspaceSelector>,
    name: String,
) -> Result<Uuid, Status> {
    let get = GetSandboxRequest { name, workspace_scope }.encode_to_vec();
    let reply = ask(bus, &subject::read(Method::GetSandbox), call, get.into()).await?;
    let metadata = SandboxResponse::decode(reply.message).ok().and_then(|response| response.sandbox?.metadata);
    metadata
        .and_then(|metadata| Uuid::try_parse(&metadata.id).ok())
        .ok_or_else(|| Status::internal("an answer could not be read"))
}

async fn send(bus: &Bus, subject: &str, request: Bytes, deadline: Deadline) -> Result<Reply, Status> {
    let mut attempts = Attempts::begin(Instant::now(), deadline.instant);
    loop {
        let missed = match bus.read(subject, request.clone(), attempts.left(Instant::now()), is_final).await {
            Ok(reply) => match told(reply) {
                Err(status) if status.code() == Code::Unavailable => Missed::Unable(status),
                told => return told,
            },
            Err(error) => Missed::Request(error),
        };
        match attempts.after(missed, Instant::now()) {
            Next::Again(pause) => tokio::time::sleep(pause).await,
            Next::Give(status) => return Err(status),
        }
    }
}

fn told(reply: Bytes) -> Result<Reply, Status> {
    match ReadReply::decode(reply).ok().and_then(|reply| reply.outcome) {
        Some(Outcome::Response(message)) => Ok(Reply::new(message)),
        Some(Outcome::Status(status)) => Err(decode(&status)),
        // This role holds no key for what is secret, and asks for nothing that is.
        Some(Outcome::SecretResponse(_)) | None => Err(Status::internal("an answer could not be read")),
    }
}

/// An attempt that came to nothing.
#[derive(Debug)]
enum Missed {
    Request(RequestError),
    /// A replica answered that it cannot answer now; another one may.
    Unable(Status),
}

/// What was tried so far.
#[derive(Debug)]
struct Attempts {
    began: Instant,
    deadline: Instant,
    unable: u32,
}

#[derive(Debug)]
enum Next {
    Again(Duration),
    Give(Status),
}

impl Attempts {
    const fn begin(began: Instant, deadline: Instant) -> Self {
        Self { began, deadline, unable: 0 }
    }

    /// Time until the last attempt has to have ended.
    fn left(&self, now: Instant) -> Duration {
        self.deadline.min(self.began + BOUND).duration_since(now)
    }

    fn after(&mut self, missed: Missed, now: Instant) -> Next {
        if now >= self.deadline {
            return Next::Give(Status::deadline_exceeded("no answer in time"));
        }
        let more = now < self.began + BOUND;
        match missed {
            Missed::Request(RequestError::NoResponders) if more => Next::Again(PAUSE),
            Missed::Request(RequestError::NoResponders) => Next::Give(unavailable("nobody can answer this now")),
            Missed::Request(RequestError::TimedOut) => Next::Give(unavailable("no answer in time")),
            Missed::Unable(status) => {
                self.unable += 1;
                if more && self.unable < ATTEMPTS { Next::Again(PAUSE) } else { Next::Give(status) }
            }
            Missed::Request(RequestError::Overloaded) => Next::Give(busy("too many reads are waiting")),
            Missed::Request(error) => {
                tracing::error!(%error, "a read failed");
                Next::Give(Status::internal("an internal error"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn code(next: Next) -> Option<Code> {
        match next {
            Next::Again(_) => None,
            Next::Give(status) => Some(status.code()),
        }
    }

    #[test]
    fn a_read_outlives_the_death_of_a_replica_but_not_of_all() {
        let now = Instant::now();
        let mut attempts = Attempts::begin(now, now + 60 * SECOND);
        assert_eq!(code(attempts.after(Missed::Request(RequestError::NoResponders), now + 3 * SECOND)), None);
        assert_eq!(
            code(attempts.after(Missed::Request(RequestError::NoResponders), now + 6 * SECOND)),
            Some(Code::Unavailable)
        );
        assert_eq!(attempts.left(now + 4 * SECOND), SECOND, "the last attempt is the shorter");
        assert_eq!(
            code(attempts.after(Missed::Request(RequestError::TimedOut), now + 5 * SECOND)),
            Some(Code::Unavailable)
        );
    }

    #[test]
    fn a_replica_that_cannot_answer_leaves_it_to_another_and_its_words_are_the_last_resort() {
        let now = Instant::now();
        let mut attempts = Attempts::begin(now, now + 60 * SECOND);
        let said = || Missed::Unable(Status::unavailable("the database does not answer"));
        assert_eq!([code(attempts.after(said(), now)), code(attempts.after(said(), now))], [None, None]);
        let Next::Give(status) = attempts.after(said(), now) else { panic!("it goes on for ever") };
        assert_eq!(status.message(), "the database does not answer");
    }

    #[test]
    fn the_deadline_is_the_last_word() {
        let now = Instant::now();
        let mut attempts = Attempts::begin(now, now + SECOND);
        assert_eq!(
            code(attempts.after(Missed::Request(RequestError::NoResponders), now + SECOND)),
            Some(Code::DeadlineExceeded)
        );
        assert_eq!(code(attempts.after(Missed::Request(RequestError::Overloaded), now)), Some(Code::ResourceExhausted));
    }
}
