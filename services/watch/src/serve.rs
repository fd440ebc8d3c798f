//! Answering reads on the bus.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use prost::Message as _;
use roadstead_bus::service::Endpoint;
use roadstead_proto::internal::{ReadReply, ReadRequest, SandboxEntriesRequest, principal, read_reply};
use roadstead_proto::method::Method;
use roadstead_proto::subject;
use roadstead_service_kit::{clock, telemetry};
use tracing::Instrument as _;

use crate::read::{self, METHODS, Reads};
use crate::refusal::Refusal;

/// Longest that a read may take, whatever its caller says.
const LONGEST: Duration = Duration::from_secs(30);

/// How reads went.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    reads: Family<Labels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    method: &'static str,
    answered: bool,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("reads", "Reads by method, answered or refused", metrics.reads.clone());
        metrics
    }

    fn count(&self, method: &'static str, answered: bool) {
        self.reads.get_or_create(&Labels { method, answered }).inc();
    }
}

/// One endpoint for each method, and one for the hubs of edges.
pub(crate) fn endpoints(reads: &Reads, metrics: &Metrics) -> Vec<Endpoint> {
    let mut endpoints: Vec<_> = METHODS
        .into_iter()
        .map(|method| {
            let (reads, metrics) = (reads.clone(), metrics.clone());
            Endpoint::new(subject::read(method), move |request| {
                let (reads, metrics) = (reads.clone(), metrics.clone());
                async move {
                    let result = answer(&reads, method, request).await;
                    metrics.count(method.name(), result.is_ok());
                    reply(method.name(), result)
                }
            })
        })
        .collect();
    let (reads, metrics) = (reads.clone(), metrics.clone());
    endpoints.push(Endpoint::new(subject::READ_SANDBOX_ENTRIES, move |request| {
        const NAME: &str = "SandboxEntries";
        let (reads, metrics) = (reads.clone(), metrics.clone());
        async move {
            let result = entries(&reads, request).await;
            metrics.count(NAME, result.is_ok());
            reply(NAME, result)
        }
    }));
    endpoints
}

/// Whether an endpoint answers lists. They take far longer than reads of one object.
pub(crate) fn is_list(endpoint: &Endpoint) -> bool {
    let mut lists = METHODS.into_iter().filter(|method| method.name().starts_with("List"));
    lists.any(|list| subject::read(list) == endpoint.subject())
}

async fn answer(reads: &Reads, method: Method, request: Bytes) -> Result<Bytes, Refusal> {
    let ReadRequest { principal, request, deadline, traceparent } = ReadRequest::decode(request)?;
    let Some(principal::Kind::User(user)) = principal.and_then(|principal| principal.kind) else {
        return Err(Refusal::NotAUser);
    };
    let span = tracing::info_span!("read", method = method.name());
    telemetry::continue_trace(&span, &traceparent);
    let deadline = deadline.and_then(|deadline| SystemTime::try_from(deadline).ok());
    let left = deadline.map_or(LONGEST, |deadline| time_left(deadline, clock::now()));
    tokio::time::timeout(left, reads.answer(method, &user, request).instrument(span))
        .await
        .unwrap_or(Err(Refusal::Late))
}

fn time_left(deadline: SystemTime, now: SystemTime) -> Duration {
    deadline.duration_since(now).unwrap_or(Duration::ZERO).min(LONGEST)
}

async fn entries(reads: &Reads, request: Bytes) -> Result<Bytes, Refusal> {
    let reply = read::entries(&reads.database, SandboxEntriesRequest::decode(request)?).await?;
    Ok(reply.encode_to_vec().into())
}

fn reply(method: &'static str, result: Result<Bytes, Refusal>) -> Bytes {
    let outcome = match result {
        Ok(response) => read_reply::Outcome::Response(response),
        Err(refusal) => {
            if let Refusal::Unavailable(error) = &refusal {
                tracing::warn!(method, error = error as &dyn std::error::Error, "a read failed");
            }
            read_reply::Outcome::Status(refusal.status().to_bytes().into())
        }
    };
    ReadReply { outcome: Some(outcome) }.encode_to_vec().into()
}
