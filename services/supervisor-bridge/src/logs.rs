//! `PushSandboxLogs`: what a sandbox logs goes line by line into the stream of activity (D8).
//!
//! The next batch of a stream is read when the one before is stored, so a supervisor is slowed down by the transport
//! before anything is dropped for the broker's sake.

pub mod allowance;
mod encoded;
mod lanes;
pub mod line;

use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response};
use prost::Message as _;
use prost_types::Timestamp;
use roadstead_door::auth::Principal;
use roadstead_door::deadline::Deadline;
use roadstead_door::status::{busy, stopping};
use roadstead_door::{Call, drain, frame};
use roadstead_proto::activity::{Activity, Kind};
use roadstead_proto::api::v1::{PushSandboxLogsRequest, PushSandboxLogsResponse, SandboxLogLine};
use roadstead_proto::internal::{SandboxIdentity, StandingRequest};
use roadstead_proto::subject::ConfigCall;
use roadstead_service_kit::clock;
use tokio::sync::Semaphore;
use tonic::{Code, Status, Streaming};
use uuid::Uuid;

use crate::bridge::Bridge;
use crate::own::foreign;
use crate::read;
use allowance::{Allowance, BATCH};
use encoded::Encoded;
use lanes::Lanes;

/// Largest batch, in bytes.
const MESSAGE_BYTES: usize = 1024 * 1024;
/// Streams that one sandbox may have open at this process.
const STREAMS: usize = 4;
/// How long it is taken for granted that a token is of the sandbox's present run.
const STANDING: Duration = Duration::from_secs(60);
/// How long the answer to that is waited for.
const PATIENCE: Duration = Duration::from_secs(20);
/// Batches of all sandboxes that are decoded or on their way to the broker at a time; each sandbox has at most one.
const STORING: usize = 64;

/// What all streams share.
#[derive(Debug)]
pub(crate) struct Logs {
    lanes: Lanes,
    storing: Semaphore,
}

impl Default for Logs {
    fn default() -> Self {
        Self { lanes: Lanes::default(), storing: Semaphore::new(STORING) }
    }
}

/// Takes batches until the client ends its side.
///
/// # Errors
///
/// `PERMISSION_DENIED` for a batch of another sandbox; `UNAUTHENTICATED` for a token of an earlier run, and when the
/// token's time is over; `RESOURCE_EXHAUSTED` if the sandbox has too many streams open, or for a batch that is too large;
/// `INVALID_ARGUMENT` for one that cannot be read; `UNAVAILABLE` if this process stops.
pub(crate) async fn push(
    bridge: &Bridge,
    call: &Call,
    request: Request<tonic::body::Body>,
) -> Result<Response<tonic::body::Body>, Status> {
    let Principal::Sandbox(identity) = call.principal()? else { return Err(foreign()) };
    let sandbox_id = Uuid::try_parse(&identity.sandbox_id).map_err(|_| foreign())?;
    let lane = bridge.logs.lanes.enter(sandbox_id, STREAMS, Instant::now());
    let lane = lane.ok_or_else(|| busy("the sandbox pushes logs on as many streams as it may"))?;
    let mut inbound = Streaming::new_request(Encoded, request.into_body(), None, Some(MESSAGE_BYTES));
    let mut time_over = pin!(tokio::time::sleep(time_left(bridge, identity)));
    let mut turn_to_end = pin!(drain::turn(&bridge.drain));
    stands(bridge, identity, call).await?;
    let mut stood = Instant::now();
    let subject = Activity { sandbox_id, kind: Kind::Log }.to_string();
    let ended = loop {
        let batch = tokio::select! {
            // First: also a stream that is busy, or idle, ends in time.
            biased;
            () = &mut time_over => break Err(Status::unauthenticated("the token has run out; push on with a new one")),
            () = &mut turn_to_end => break Err(stopping()),
            batch = inbound.message() => match batch {
                Ok(batch) => batch,
                Err(status) => break Err(status),
            },
        };
        let Some(batch) = batch else { break Ok(()) };
        if stood.elapsed() > STANDING {
            match stands(bridge, identity, call).await {
                Err(status) if status.code() != Code::Unavailable => break Err(status),
                // Not to know is not to be refused; the token itself runs out.
                Ok(()) | Err(_) => stood = Instant::now(),
            }
        }
        let mut allowance = lane.lock().await;
        // Decoded it is many times as large. The semaphore is never closed.
        let _turn = bridge.logs.storing.acquire().await;
        let Ok(batch) = PushSandboxLogsRequest::decode(batch) else {
            break Err(Status::invalid_argument("a batch is not a message of its type"));
        };
        if batch.sandbox_id != identity.sandbox_id {
            break Err(foreign());
        }
        store(bridge, &subject, &batch.sandbox_id, batch.logs, &mut allowance).await;
    };
    let mut allowance = lane.lock().await;
    let turn = bridge.logs.storing.acquire().await;
    tell(bridge, &subject, &identity.sandbox_id, &mut allowance, true).await;
    drop((turn, allowance));
    match ended {
        Ok(()) => {
            let response = Bytes::from(PushSandboxLogsResponse {}.encode_to_vec());
            Ok(frame::stream_response(stream::iter([Ok(response)])))
        }
        // The message was larger than it may be: a limit, as at every other method.
        Err(status) if status.code() == Code::OutOfRange => Err(Status::resource_exhausted(status.message())),
        Err(status) => Err(status),
    }
}

/// How long the token is accepted from now on.
fn time_left(bridge: &Bridge, identity: &SandboxIdentity) -> Duration {
    let now = clock::now();
    let token = bridge.tokens.verify(&identity.token, now).ok();
    token.and_then(|token| token.accepted_until().duration_since(now).ok()).unwrap_or_default()
}

/// Whether the token is of the sandbox's present run.
async fn stands(bridge: &Bridge, identity: &SandboxIdentity, call: &Call) -> Result<(), Status> {
    let request = StandingRequest { sandbox_id: identity.sandbox_id.clone() }.encode_to_vec();
    let deadline = Deadline::after(PATIENCE);
    read::ask(bridge, ConfigCall::Standing, identity, request.into(), deadline, &call.traceparent).await.map(drop)
}

async fn store(
    bridge: &Bridge,
    subject: &str,
    sandbox_id: &str,
    lines: Vec<SandboxLogLine>,
    allowance: &mut Allowance,
) {
    let metrics = &bridge.metrics;
    let beyond = lines.len().saturating_sub(BATCH);
    allowance.lost(beyond as u64);
    let (now, time) = (Instant::now(), Timestamp::from(clock::now()));
    let taken = lines.into_iter().take(BATCH).map(|line| line::of_sandbox(sandbox_id, line, time));
    let mut over = 0;
    let mut admitted = Vec::with_capacity(BATCH);
    for line in taken {
        if allowance.take(line.len(), now) {
            admitted.push(Bytes::from(line));
        } else {
            over += 1;
        }
    }
    let sent = admitted.len();
    let stored = if sent == 0 { 0 } else { bridge.bus.enqueue_all(subject, admitted).await };
    allowance.lost((sent - stored) as u64);
    metrics.log_lines.inc_by(stored as u64);
    for (reason, lines) in [("batch", beyond), ("rate", over), ("broker", sent - stored)] {
        metrics.dropped(reason, lines as u64);
    }
    tell(bridge, subject, sandbox_id, allowance, false).await;
}

/// Says in the log itself that lines were dropped.
async fn tell(bridge: &Bridge, subject: &str, sandbox_id: &str, allowance: &mut Allowance, last: bool) {
    let Some(lines) = allowance.tell(Instant::now(), last) else { return };
    let word = line::of_dropped(sandbox_id, lines, clock::now().into());
    if bridge.bus.enqueue_all(subject, vec![word.into()]).await == 0 {
        allowance.lost(lines);
    }
}
