//! `ReportProviderReadiness`: goes to the session, in whichever bridge that is held.

mod holders;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message as _;
use roadstead_bus::RequestError;
use roadstead_bus::service::Endpoint;
use roadstead_door::status::{busy, decode, unavailable};
use roadstead_door::{Call, Reply};
use roadstead_proto::api::v1::{
    ProviderReadinessObservation, ReportProviderReadinessRequest, ReportProviderReadinessResponse,
};
use roadstead_proto::internal::principal::Kind;
use roadstead_proto::internal::read_reply::Outcome;
use roadstead_proto::internal::{ReadReply, ReadRequest, SandboxIdentity, StandingReply, StandingRequest};
use roadstead_proto::sealing::open_token;
use roadstead_proto::subject::{self, ConfigCall};
use roadstead_service_kit::clock;
use roadstead_service_kit::status::{Status as RichStatus, to_bytes};
use tonic::Status;
use uuid::Uuid;

pub(crate) use holders::Holders;

use crate::bridge::Bridge;
use crate::own::foreign;
use crate::read;
use crate::readiness::{OBSERVATION_TTL, REPORT_INTERVAL, Refused};
use crate::sessions::NotHeld;

/// How long another bridge may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Takes in what a session observes, or has the bridge do so that holds it.
///
/// # Errors
///
/// `FAILED_PRECONDITION` if it is not the live session, did not announce that it observes, or has said something later;
/// `INVALID_ARGUMENT` for what cannot be an observation; `UNAVAILABLE` if the other bridge does not answer.
pub(crate) async fn observe(
    bridge: &Bridge,
    call: &Call,
    identity: &SandboxIdentity,
    request: Bytes,
) -> Result<Reply, Status> {
    let observed = match Observed::read(identity, &request) {
        Ok(observed) => match observed.take(bridge, identity.generation) {
            Err(NotHeld) => elsewhere(bridge, call, identity, &observed, request).await,
            Ok(taken) => taken,
        },
        Err(status) => Err(status),
    };
    bridge.metrics.observed(observed.is_ok());
    observed.map(Reply::new)
}

/// For other bridges, to which a supervisor may speak about a session of this one.
pub(crate) fn endpoint(bridge: &Arc<Bridge>) -> Endpoint {
    let bridge = Arc::clone(bridge);
    Endpoint::new(subject::observe(bridge.id), move |request: Bytes| {
        let bridge = Arc::clone(&bridge);
        async move {
            let outcome = match passed_on(&bridge, request) {
                Ok(response) => Outcome::Response(response.into()),
                Err(status) => Outcome::Status(to_bytes(&status).into()),
            };
            ReadReply { outcome: Some(outcome) }.encode_to_vec().into()
        }
    })
}

/// Takes in what another bridge passed on. Its word is not enough: the sandbox's token comes with it.
fn passed_on(bridge: &Bridge, request: Bytes) -> Result<Vec<u8>, Status> {
    let unauthenticated = || Status::unauthenticated("a valid credential is required");
    let request = ReadRequest::decode(request).map_err(|_| unreadable())?;
    let Some(Kind::Sandbox(said)) = request.principal.and_then(|principal| principal.kind) else {
        return Err(unauthenticated());
    };
    let token = open_token(&bridge.keys, &said.token).map_err(|_| unauthenticated())?;
    let verified = bridge.tokens.verify(&token, clock::now()).map_err(|_| unauthenticated())?;
    let identity = SandboxIdentity {
        sandbox_id: verified.sandbox_id.to_string(),
        generation: verified.generation,
        token: String::new(),
    };
    Observed::read(&identity, &request.request)?.take(bridge, identity.generation)?
}

/// Has another bridge take it in, if one holds the session. Which one is asked once, not at each word of a supervisor.
async fn elsewhere(
    bridge: &Bridge,
    call: &Call,
    identity: &SandboxIdentity,
    observed: &Observed,
    request: Bytes,
) -> Result<Vec<u8>, Status> {
    let session = (observed.sandbox_id, observed.session_id);
    if let Some(known) = bridge.holders.of(session) {
        match pass_on(bridge, known, call, identity, request.clone()).await {
            Err(status) if matches!(status.code(), tonic::Code::Unavailable | tonic::Code::FailedPrecondition) => {
                bridge.holders.forget(session);
            }
            answered => return answered,
        }
    }
    let holder = holder(bridge, call, identity, observed).await?;
    let answered = pass_on(bridge, holder, call, identity, request).await;
    if answered.is_ok() {
        bridge.holders.remember(session, holder);
    }
    answered
}

/// The other bridge that holds the session, by the sandbox's row.
async fn holder(bridge: &Bridge, call: &Call, identity: &SandboxIdentity, observed: &Observed) -> Result<Uuid, Status> {
    let asked = StandingRequest { sandbox_id: identity.sandbox_id.clone() }.encode_to_vec();
    let (deadline, traceparent) = (call.deadline, &call.traceparent);
    let standing = read::ask(bridge, ConfigCall::Standing, identity, asked.into(), deadline, traceparent).await?;
    let standing = StandingReply::decode(standing).map_err(|_| Status::internal("an answer could not be read"))?;
    let holder = Uuid::try_parse(&standing.bridge_id).ok().filter(|holder| *holder != bridge.id);
    let live = standing.session_id == observed.session_id.to_string();
    Ok(holder.filter(|_| live).ok_or(NotHeld)?)
}

async fn pass_on(
    bridge: &Bridge,
    holder: Uuid,
    call: &Call,
    identity: &SandboxIdentity,
    request: Bytes,
) -> Result<Vec<u8>, Status> {
    let request = read::passed_on(bridge, identity, request, call.deadline, &call.traceparent);
    let patience = PATIENCE.min(call.deadline.remaining());
    let reply = bridge.bus.request(subject::observe(holder), request, patience).await.map_err(|error| match error {
        RequestError::Overloaded => busy("the bridge that holds the session is busy"),
        _ => unavailable("the bridge that holds the session does not answer"),
    })?;
    match ReadReply::decode(reply).ok().and_then(|reply| reply.outcome) {
        Some(Outcome::Response(message)) => Ok(message.into()),
        Some(Outcome::Status(status)) => Err(decode(&status)),
        Some(Outcome::SecretResponse(_)) | None => Err(Status::internal("an answer could not be read")),
    }
}

/// A request, read.
struct Observed {
    sandbox_id: Uuid,
    session_id: Uuid,
    observation: ProviderReadinessObservation,
}

impl Observed {
    fn read(identity: &SandboxIdentity, request: &Bytes) -> Result<Self, Status> {
        let request = ReportProviderReadinessRequest::decode(request.clone()).map_err(|_| unreadable())?;
        if request.sandbox_id != identity.sandbox_id {
            return Err(foreign());
        }
        let observation = request.observation.ok_or_else(|| RichStatus::invalid("observation", "required"))?;
        let session_id = Uuid::try_parse(&observation.session_id)
            .map_err(|_| RichStatus::invalid("observation.session_id", "must be a UUID"))?;
        let sandbox_id = Uuid::try_parse(&identity.sandbox_id).map_err(|_| foreign())?;
        Ok(Self { sandbox_id, session_id, observation })
    }

    /// The encoded response, if this process holds the session.
    fn take(&self, bridge: &Bridge, generation: u64) -> Result<Result<Vec<u8>, Status>, NotHeld> {
        let (key, observation) = ((self.sandbox_id, self.session_id), self.observation.clone());
        let taken = bridge.sessions.observe(key, generation, observation, Instant::now())?;
        let response = ReportProviderReadinessResponse {
            accepted_sequence: self.observation.sequence,
            report_interval: Some(duration(REPORT_INTERVAL)),
            observation_ttl: Some(duration(OBSERVATION_TTL)),
        };
        Ok(taken.map(|()| response.encode_to_vec()).map_err(Status::from))
    }
}

fn duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration { seconds: duration.as_secs().cast_signed(), nanos: 0 }
}

fn unreadable() -> Status {
    Status::invalid_argument("the request cannot be decoded")
}

impl From<NotHeld> for Status {
    fn from(error: NotHeld) -> Self {
        Self::failed_precondition(error.to_string())
    }
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Invalid { field, description } => {
                RichStatus::invalid(&format!("observation.{field}"), description).into()
            }
            Refused::NotAnnounced | Refused::Late | Refused::Changed => Self::failed_precondition(refused.to_string()),
        }
    }
}
