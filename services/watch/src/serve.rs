//! Answering reads on the bus.

use std::future::Future;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use prost::Message as _;
use roadstead_bus::service::Endpoint;
use roadstead_proto::internal::{ReadReply, ReadRequest, SandboxEntriesRequest, principal, read_reply};
use roadstead_proto::method::Method;
use roadstead_proto::subject;
use roadstead_service_kit::{clock, telemetry};
use tonic::Code;
use tracing::Instrument as _;

use crate::read::{self, METHODS, Reads};
use crate::refusal::Refusal;

/// Longest that a read may take, whatever its caller says.
const LONGEST: Duration = Duration::from_secs(30);

/// How reads went.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    reads: Family<Outcome, Counter>,
    seconds: Family<Called, Histogram>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Called {
    method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    method: &'static str,
    /// A code of gRPC.
    code: String,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let seconds = || Histogram::new(exponential_buckets(0.000_5, 2.0, 16));
        let metrics = Self { reads: Family::default(), seconds: Family::new_with_constructor(seconds) };
        registry.register("reads", "Reads by method and outcome", metrics.reads.clone());
        registry.register("read_seconds", "Time to the answer of a read", metrics.seconds.clone());
        metrics
    }

    fn count(&self, method: &'static str, code: Code, took: Duration) {
        self.reads.get_or_create(&Outcome { method, code: format!("{code:?}") }).inc();
        self.seconds.get_or_create(&Called { method }).observe(took.as_secs_f64());
    }
}

/// What is served, apart for each number of slots.
#[derive(Debug)]
pub(crate) struct Endpoints {
    /// Reads of one object, and those of the hubs of edges.
    pub(crate) single: Vec<Endpoint>,
    /// They take far longer.
    pub(crate) lists: Vec<Endpoint>,
}

/// One endpoint for each method, and one for the hubs of edges.
pub(crate) fn endpoints(reads: &Reads, metrics: &Metrics) -> Endpoints {
    let of_method = |method: Method| {
        let answer = move |reads, request| async move { answer(&reads, method, request).await };
        endpoint(subject::read(method), method.name(), reads, metrics, answer)
    };
    let entries = |reads, request| async move { entries(&reads, request).await };
    let of_hubs = endpoint(subject::READ_SANDBOX_ENTRIES.to_owned(), "SandboxEntries", reads, metrics, entries);
    let (lists, single) = METHODS.into_iter().partition::<Vec<_>, _>(|method| method.name().starts_with("List"));
    Endpoints {
        single: single.into_iter().map(of_method).chain([of_hubs]).collect(),
        lists: lists.into_iter().map(of_method).collect(),
    }
}

/// Answers, and counts how that went.
fn endpoint<H, F>(subject: String, name: &'static str, reads: &Reads, metrics: &Metrics, handler: H) -> Endpoint
where
    H: Fn(Reads, Bytes) -> F + Copy + Send + Sync + 'static,
    F: Future<Output = Result<Bytes, Refusal>> + Send + 'static,
{
    let (reads, metrics) = (reads.clone(), metrics.clone());
    Endpoint::read(subject, move |request| {
        let (reads, metrics) = (reads.clone(), metrics.clone());
        async move {
            let began = Instant::now();
            let result = handler(reads, request).await;
            let code = result.as_ref().map_or_else(|refusal| refusal.status().code(), |_| Code::Ok);
            metrics.count(name, code, began.elapsed());
            reply(name, result)
        }
    })
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
    within(left, reads.answer(method, &user, request).instrument(span)).await
}

fn time_left(deadline: SystemTime, now: SystemTime) -> Duration {
    deadline.duration_since(now).unwrap_or(Duration::ZERO).min(LONGEST)
}

/// Answers in that time. What waited here until it was too late is not even begun.
async fn within<T>(left: Duration, answer: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
    if left.is_zero() {
        return Err(Refusal::Late);
    }
    tokio::time::timeout(left, answer).await.unwrap_or(Err(Refusal::Late))
}

async fn entries(reads: &Reads, request: Bytes) -> Result<Bytes, Refusal> {
    let reply = read::entries(&reads.database, SandboxEntriesRequest::decode(request)?).await?;
    Ok(reply.encode_to_vec().into())
}

fn reply(method: &'static str, result: Result<Bytes, Refusal>) -> Bytes {
    let outcome = match result {
        Ok(response) => read_reply::Outcome::Response(response),
        Err(refusal) => {
            refusal.report(method);
            read_reply::Outcome::Status(refusal.status().to_bytes().into())
        }
    };
    ReadReply { outcome: Some(outcome) }.encode_to_vec().into()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_too_late_is_not_begun_and_what_becomes_so_is_given_up() {
        let begun = Cell::new(0);
        let work = |takes: u64| {
            let begun = &begun;
            async move {
                begun.set(begun.get() + 1);
                tokio::time::sleep(Duration::from_secs(takes)).await;
                Ok(())
            }
        };
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        let left = |deadline: u64| time_left(SystemTime::UNIX_EPOCH + Duration::from_secs(deadline), now);
        assert!(matches!(within(left(99), std::future::ready(Ok(()))).await, Err(Refusal::Late)));
        assert!(matches!(within(left(100), work(0)).await, Err(Refusal::Late)));
        assert_eq!(begun.get(), 0);
        assert!(within(left(103), work(1)).await.is_ok());
        assert!(matches!(within(left(103), work(4)).await, Err(Refusal::Late)));
        assert_eq!(left(1000), LONGEST);
    }
}
