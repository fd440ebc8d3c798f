//! The beginning of a session, up to the registration.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use prost::Message as _;
use roadstead_door::auth::Principal;
use roadstead_door::commands::Command;
use roadstead_door::deadline::Deadline;
use roadstead_door::status::{busy, stopping, unavailable};
use roadstead_door::{Call, frame};
use roadstead_proto::api::v1::supervisor_message::Payload;
use roadstead_proto::api::v1::{SupervisorHello, SupervisorMessage};
use roadstead_proto::internal::{RegisterSession, SandboxIdentity, SessionRegistered};
use roadstead_proto::subject::{self, Report};
use roadstead_service_kit::clock;
use roadstead_service_kit::status::Status as RichStatus;
use tokio::sync::oneshot;
use tonic::codec::BufferSettings;
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstDecoder;
use uuid::Uuid;

use crate::bridge::Bridge;
use crate::config::Delivery;
use crate::own::foreign;
use crate::session::{self, Opened};

/// How long a supervisor may take to say who it is.
const HELLO: Duration = Duration::from_secs(10);
/// How long the registration may take. Past it the registration can no longer take effect.
const REGISTRATION: Duration = Duration::from_secs(10);
/// Largest message of a supervisor.
const MESSAGE_BYTES: usize = 1024 * 1024;
/// What is set aside for messages before one has come; it grows as needed.
const INBOUND_BUFFER: usize = 256;

/// Opens a session and returns when it was accepted.
///
/// # Errors
///
/// Why it was not.
pub(crate) async fn connect(
    bridge: &Arc<Bridge>,
    call: &Call,
    request: Request<tonic::body::Body>,
) -> Result<http::Response<tonic::body::Body>, Status> {
    let opened = connect_inner(bridge, call, request).await;
    if opened.is_err() {
        bridge.metrics.refused.inc();
    }
    opened
}

async fn connect_inner(
    bridge: &Arc<Bridge>,
    call: &Call,
    request: Request<tonic::body::Body>,
) -> Result<http::Response<tonic::body::Body>, Status> {
    let Principal::Sandbox(identity) = call.principal()? else { return Err(foreign()) };
    if bridge.drain.is_cancelled() {
        return Err(stopping());
    }
    if !*bridge.alive.borrow() {
        return Err(unavailable("this process is not ready; connect again"));
    }
    let place = Arc::clone(&bridge.places)
        .try_acquire_owned()
        .map_err(|_| busy("this process holds as many sessions as it may"))?;
    let sandbox_id = Uuid::try_parse(&identity.sandbox_id).map_err(|_| foreign())?;
    let token_expires = bridge
        .tokens
        .verify(&identity.token, clock::now())
        .map_err(|_| Status::unauthenticated("a valid credential is required"))?
        .expires_at;

    // What a supervisor says is small, and there are many of them.
    let decoder = ProstDecoder::new(BufferSettings::new(INBOUND_BUFFER, MESSAGE_BYTES));
    let mut inbound = Streaming::new_request(decoder, request.into_body(), None, Some(MESSAGE_BYTES));
    let mut hello = tokio::time::timeout(HELLO, hello(&mut inbound))
        .await
        .map_err(|_| Status::invalid_argument("no hello came in time"))??;
    if hello.sandbox_id.is_empty() {
        return Err(RichStatus::invalid("hello.sandbox_id", "required").into());
    }
    if hello.sandbox_id != identity.sandbox_id {
        return Err(foreign());
    }
    // What a session may be sent is what both sides do.
    hello.supports_config_push &= bridge.delivery == Delivery::Push;

    let (established, accepted) = oneshot::channel();
    let opened = Opened {
        bridge: Arc::clone(bridge),
        identity: Arc::clone(identity),
        sandbox_id,
        token_expires,
        hello,
        inbound,
        established,
        traceparent: call.traceparent.clone(),
    };
    bridge.tasks.spawn(session::run(opened, place));
    let messages = accepted.await.map_err(|_| Status::internal("an internal error"))??;
    Ok(frame::stream_response(messages))
}

/// The first message, which must be the hello.
async fn hello(inbound: &mut Streaming<SupervisorMessage>) -> Result<SupervisorHello, Status> {
    let not_hello = || Status::invalid_argument("the first message must be the hello");
    match inbound.message().await {
        Ok(Some(SupervisorMessage { payload: Some(Payload::Hello(hello)) })) => Ok(hello),
        Ok(_) => Err(not_hello()),
        Err(status) if status.code() == Code::Cancelled => Err(status),
        Err(_) => Err(not_hello()),
    }
}

/// What a registration came to.
pub(crate) enum Registration {
    Registered(SessionRegistered),
    /// There is no such session, and there will be none.
    Refused(Status),
    /// It may have taken effect, and can no longer.
    Unknown(Status),
}

/// Asks admission to make this the sandbox's session.
pub(crate) async fn register(
    bridge: &Bridge,
    session_id: Uuid,
    identity: &Arc<SandboxIdentity>,
    hello: &SupervisorHello,
    traceparent: String,
) -> Registration {
    let request = RegisterSession {
        session_id: session_id.to_string(),
        bridge_id: bridge.id.to_string(),
        instance_id: hello.instance_id.clone(),
        connection_epoch: hello.connection_epoch,
        config_push: hello.supports_config_push,
        provider_readiness: hello.supports_provider_readiness,
    };
    let deadline = Deadline::after(REGISTRATION);
    let command = Command {
        subject: subject::report(Report::RegisterSession),
        method: Report::RegisterSession.name(),
        principal: Principal::Sandbox(Arc::clone(identity)),
        request: request.encode_to_vec().into(),
        deadline,
        traceparent,
    };
    match bridge.commands.call(command).await {
        Ok(reply) => match SessionRegistered::decode(reply.message) {
            Ok(registered) => Registration::Registered(registered),
            Err(_) => Registration::Unknown(Status::internal("an answer could not be read")),
        },
        Err(status) => match status.code() {
            Code::DeadlineExceeded | Code::Internal | Code::Unknown => {
                // Only past its deadline is it certain that a copy on its way does nothing any more.
                tokio::time::sleep_until(deadline.instant).await;
                Registration::Unknown(unavailable("the session could not be registered; connect again"))
            }
            _ => Registration::Refused(status),
        },
    }
}
