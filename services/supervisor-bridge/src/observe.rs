//! `ReportProviderReadiness`: goes to the session, which this process has to hold.

use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message as _;
use roadstead_door::Reply;
use roadstead_proto::api::v1::{ReportProviderReadinessRequest, ReportProviderReadinessResponse};
use roadstead_proto::internal::SandboxIdentity;
use roadstead_service_kit::status::Status as RichStatus;
use tonic::Status;
use uuid::Uuid;

use crate::bridge::Bridge;
use crate::own::foreign;
use crate::readiness::{OBSERVATION_TTL, REPORT_INTERVAL, Refused};
use crate::sessions::NotHeld;

/// Takes in what a session observes.
///
/// # Errors
///
/// `FAILED_PRECONDITION` if it is not the live session, did not announce that it observes, or has said something later;
/// `INVALID_ARGUMENT` for what cannot be an observation.
pub(crate) fn observe(bridge: &Bridge, identity: &SandboxIdentity, request: &Bytes) -> Result<Reply, Status> {
    let observed = take(bridge, identity, request);
    bridge.metrics.observed(observed.is_ok());
    observed
}

fn take(bridge: &Bridge, identity: &SandboxIdentity, request: &Bytes) -> Result<Reply, Status> {
    let request = ReportProviderReadinessRequest::decode(request.clone())
        .map_err(|_| Status::invalid_argument("the request cannot be decoded"))?;
    if request.sandbox_id != identity.sandbox_id {
        return Err(foreign());
    }
    let observation = request.observation.ok_or_else(|| RichStatus::invalid("observation", "required"))?;
    let session_id = Uuid::try_parse(&observation.session_id)
        .map_err(|_| RichStatus::invalid("observation.session_id", "must be a UUID"))?;
    let sandbox_id = Uuid::try_parse(&identity.sandbox_id).map_err(|_| foreign())?;
    let accepted_sequence = observation.sequence;
    bridge.sessions.observe((sandbox_id, session_id), identity.generation, observation, Instant::now())??;
    let response = ReportProviderReadinessResponse {
        accepted_sequence,
        report_interval: Some(duration(REPORT_INTERVAL)),
        observation_ttl: Some(duration(OBSERVATION_TTL)),
    };
    Ok(Reply::new(response.encode_to_vec()))
}

fn duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration { seconds: duration.as_secs().cast_signed(), nanos: 0 }
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
