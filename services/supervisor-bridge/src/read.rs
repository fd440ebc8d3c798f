//! Reads, answered by config-snapshot. A read has no effect, so one that got no answer is repeated.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use roadstead_bus::RequestError;
use roadstead_door::deadline::Deadline;
use roadstead_door::status::{busy, decode, is_final, unavailable};
use roadstead_proto::internal::principal::Kind;
use roadstead_proto::internal::read_reply::Outcome;
use roadstead_proto::internal::{Principal, ReadReply, ReadRequest, SandboxIdentity};
use roadstead_proto::sealing::seal_token;
use roadstead_proto::subject::{self, ConfigCall, Door};
use tokio::time::Instant;
use tonic::Status;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::bridge::Bridge;

/// How long a read is tried while nobody serves it.
const UNSERVED: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);

/// Asks for something about the caller's own sandbox.
///
/// # Errors
///
/// What was answered; `UNAVAILABLE`, `RESOURCE_EXHAUSTED` or `DEADLINE_EXCEEDED` if nothing was.
pub(crate) async fn ask(
    bridge: &Bridge,
    call: ConfigCall,
    identity: &SandboxIdentity,
    request: Bytes,
    deadline: Deadline,
    traceparent: &str,
) -> Result<Bytes, Status> {
    let request = passed_on(bridge, identity, request, deadline, traceparent);
    let reply = send(bridge, call, request, deadline).await?;
    match ReadReply::decode(reply).ok().and_then(|reply| reply.outcome) {
        Some(Outcome::Response(message)) => Ok(message),
        Some(Outcome::SecretResponse(sealed)) => open(bridge, identity, &sealed),
        Some(Outcome::Status(status)) => Err(decode(&status)),
        None => Err(Status::internal("an answer could not be read")),
    }
}

/// A request with its sandbox's token, encrypted: it travels unsealed.
pub(crate) fn passed_on(
    bridge: &Bridge,
    identity: &SandboxIdentity,
    request: Bytes,
    deadline: Deadline,
    traceparent: &str,
) -> Bytes {
    let passed = SandboxIdentity { token: seal_token(&bridge.keys, &identity.token), ..identity.clone() };
    let request = ReadRequest {
        principal: Some(Principal { kind: Some(Kind::Sandbox(passed)) }),
        request,
        deadline: Some(deadline.time.into()),
        traceparent: traceparent.to_owned(),
    };
    request.encode_to_vec().into()
}

fn open(bridge: &Bridge, identity: &SandboxIdentity, sealed: &[u8]) -> Result<Bytes, Status> {
    let unreadable = |_| Status::internal("an answer could not be read");
    let sandbox_id = Uuid::try_parse(&identity.sandbox_id).map_err(|_| Status::internal("the sandbox has no id"))?;
    let opened = Zeroizing::new(bridge.keys.decrypt(sandbox_id.as_bytes(), sealed).map_err(unreadable)?);
    Ok(Bytes::copy_from_slice(&opened))
}

async fn send(bridge: &Bridge, call: ConfigCall, request: Bytes, deadline: Deadline) -> Result<Bytes, Status> {
    let subject = subject::config(Door::Sandbox, call);
    let unserved = Instant::now() + UNSERVED;
    loop {
        match bridge.bus.read(&subject, request.clone(), deadline.remaining(), is_final).await {
            Ok(reply) => return Ok(reply),
            Err(RequestError::TimedOut) => return Err(Status::deadline_exceeded("no answer in time")),
            Err(RequestError::NoResponders) if Instant::now() < unserved => tokio::time::sleep(PAUSE).await,
            Err(RequestError::NoResponders) => return Err(unavailable("nobody can answer this now")),
            Err(RequestError::Overloaded) => return Err(busy("too many reads are waiting")),
            Err(error) => {
                tracing::error!(%error, "a read failed");
                return Err(unavailable("the configuration cannot be read now"));
            }
        }
    }
}
