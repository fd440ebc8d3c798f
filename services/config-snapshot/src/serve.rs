//! Configuration reads, as a micro service: one file per call, one way of answering.

mod bootstrap;
mod get_config;
mod get_environment;
mod get_own_config;
mod get_provider_status;
mod standing;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use prost::Message;
use roadstead_bus::Bus;
use roadstead_bus::service::{self, Endpoint, ServeError};
use roadstead_proto::internal::{ReadReply, ReadRequest, read_reply};
use roadstead_proto::sealing::CipherKeys;
use roadstead_proto::subject::{ConfigCall, Door, config};
use roadstead_service_kit::{clock, telemetry};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::ask::Tokens;
use crate::build::Builder;
use crate::refusal::Refusal;

const NAME: &str = "config-snapshot";
/// The longest that a call is worked on, whatever its deadline says.
const LONGEST: Duration = Duration::from_secs(20);

/// What the calls work with.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) builder: Builder,
    pub(crate) tokens: Tokens,
    /// Encrypts answers with secrets for the bridge; the context is the sandbox's id, as 16 bytes.
    pub(crate) cipher: CipherKeys,
}

/// A successful answer.
#[derive(Debug)]
enum Answer {
    Plain(Bytes),
    /// Encrypted under the snapshot key.
    Secret(Bytes),
}

/// Serves all calls, `slots` at a time, until `stop`.
///
/// # Errors
/// If the service cannot be offered, or the connection to the broker was closed.
pub(crate) async fn run(bus: Bus, calls: Calls, slots: usize, stop: CancellationToken) -> Result<(), ServeError> {
    let calls = Arc::new(calls);
    let endpoints = vec![
        endpoint(&calls, Door::User, ConfigCall::GetSandboxConfig, get_config::answer),
        endpoint(&calls, Door::User, ConfigCall::GetSandboxProviderStatus, get_provider_status::answer),
        endpoint(&calls, Door::Sandbox, ConfigCall::GetSandboxConfig, get_own_config::answer),
        endpoint(&calls, Door::Sandbox, ConfigCall::GetSandboxProviderEnvironment, get_environment::answer),
        endpoint(&calls, Door::Sandbox, ConfigCall::Bootstrap, bootstrap::answer),
        endpoint(&calls, Door::Sandbox, ConfigCall::Standing, standing::answer),
    ];
    service::serve(&bus, NAME, endpoints, slots, stop).await
}

fn endpoint<H, F>(calls: &Arc<Calls>, door: Door, call: ConfigCall, handler: H) -> Endpoint
where
    H: Fn(Arc<Calls>, ReadRequest) -> F + Copy + Send + Sync + 'static,
    F: Future<Output = Result<Answer, Refusal>> + Send + 'static,
{
    let calls = Arc::clone(calls);
    Endpoint::read(config(door, call), move |request: Bytes| {
        let calls = Arc::clone(&calls);
        async move { reply(within_deadline(calls, request, handler).await) }
    })
}

async fn within_deadline<H, F>(calls: Arc<Calls>, request: Bytes, handler: H) -> Result<Answer, Refusal>
where
    H: Fn(Arc<Calls>, ReadRequest) -> F,
    F: Future<Output = Result<Answer, Refusal>>,
{
    let request = ReadRequest::decode(request)?;
    let time = time_left(&request, clock::now());
    if time.is_zero() {
        return Err(Refusal::Late);
    }
    let span = tracing::info_span!("read");
    telemetry::continue_trace(&span, &request.traceparent);
    timeout(time, handler(calls, request).instrument(span)).await.unwrap_or(Err(Refusal::Late))
}

fn time_left(request: &ReadRequest, now: SystemTime) -> Duration {
    let deadline = request.deadline.and_then(|deadline| SystemTime::try_from(deadline).ok());
    let left = deadline.map_or(LONGEST, |deadline| deadline.duration_since(now).unwrap_or_default());
    left.min(LONGEST)
}

fn reply(answered: Result<Answer, Refusal>) -> Bytes {
    let outcome = match answered {
        Ok(Answer::Plain(response)) => read_reply::Outcome::Response(response),
        Ok(Answer::Secret(response)) => read_reply::Outcome::SecretResponse(response),
        Err(refusal) => {
            refusal.report();
            read_reply::Outcome::Status(refusal.status().to_bytes().into())
        }
    };
    ReadReply { outcome: Some(outcome) }.encode_to_vec().into()
}

fn encoded(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_its_own_time_up_to_a_limit() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        let left = |deadline: Option<u64>| {
            let deadline = deadline.map(|at| (SystemTime::UNIX_EPOCH + Duration::from_secs(at)).into());
            time_left(&ReadRequest { deadline, ..Default::default() }, now)
        };
        assert_eq!(left(None), LONGEST);
        assert_eq!(left(Some(103)), Duration::from_secs(3));
        assert_eq!(left(Some(500)), LONGEST);
        assert_eq!(left(Some(90)), Duration::ZERO);
    }
}
