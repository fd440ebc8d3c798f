//! What a door counts: calls by method and outcome, how long unary ones took, how many are open.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, Response};
use hyper::body::{Body, Frame};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tonic::{Code, Status};

/// The metrics of one door.
#[derive(Clone, Debug)]
pub struct Metrics {
    calls: Family<Outcome, Counter>,
    open: Family<Called, Gauge>,
    seconds: Family<Called, Histogram>,
    pub(crate) connections: Gauge,
    pub(crate) turned_away: Counter,
    pub(crate) given_up: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Called {
    method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    method: &'static str,
    /// A code of gRPC, or `gone` if the client went away before the last word.
    code: &'static str,
}

impl Metrics {
    /// Registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let seconds =
            || Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0]);
        let metrics = Self {
            calls: Family::default(),
            open: Family::default(),
            seconds: Family::new_with_constructor(seconds),
            connections: Gauge::default(),
            turned_away: Counter::default(),
            given_up: Counter::default(),
        };
        registry.register("door_calls", "Calls that ended, by method and outcome", metrics.calls.clone());
        registry.register("door_calls_open", "Calls that have not ended", metrics.open.clone());
        registry.register("door_call_seconds", "Time to the last word of a call", metrics.seconds.clone());
        registry.register("door_connections", "Open connections", metrics.connections.clone());
        registry.register(
            "door_connections_turned_away",
            "Connections closed because there were too many, or because they did not begin in time",
            metrics.turned_away.clone(),
        );
        registry.register(
            "door_responses_given_up",
            "Responses that were cut off because their clients did not take them",
            metrics.given_up.clone(),
        );
        metrics
    }

    /// A call begins; it ends when the value is dropped.
    pub(crate) fn begin(&self, method: &'static str) -> Observed {
        self.open.get_or_create(&Called { method }).inc();
        Observed { metrics: self.clone(), method, began: Instant::now(), code: None }
    }
}

/// A call that is being counted. Without a last word its client has gone.
#[derive(Debug)]
pub(crate) struct Observed {
    metrics: Metrics,
    method: &'static str,
    began: Instant,
    code: Option<Code>,
}

impl Observed {
    /// Counts the call by the last word that its response will carry.
    pub(crate) fn through(mut self, response: Response<tonic::body::Body>) -> Response<tonic::body::Body> {
        self.heard(response.headers());
        response.map(|body| tonic::body::Body::new(Watched { body, observed: self }))
    }

    /// Takes note of the status, if these headers or trailers have it.
    fn heard(&mut self, headers: &HeaderMap) {
        if let Some(status) = Status::from_header_map(headers) {
            self.code = Some(status.code());
        }
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        let called = Called { method: self.method };
        self.metrics.open.get_or_create(&called).dec();
        self.metrics.seconds.get_or_create(&called).observe(self.began.elapsed().as_secs_f64());
        let code = self.code.map_or("gone", name);
        self.metrics.calls.get_or_create(&Outcome { method: self.method, code }).inc();
        tracing::debug!(method = self.method, code, elapsed = ?self.began.elapsed(), "call ended");
    }
}

struct Watched {
    body: tonic::body::Body,
    observed: Observed,
}

impl Body for Watched {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(trailers) = frame.trailers_ref()
        {
            self.observed.heard(trailers);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

/// The code's name in the protocol.
pub(crate) const fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::BodyExt;

    use super::*;
    use crate::frame;

    fn count(metrics: &Metrics, code: &'static str) -> u64 {
        metrics.calls.get_or_create(&Outcome { method: "M", code }).get()
    }

    #[tokio::test]
    async fn a_call_counts_by_its_last_word_wherever_that_is() {
        let metrics = Metrics::register(&mut Registry::default());

        let ok = metrics.begin("M").through(frame::stream_response(stream::empty()));
        assert_eq!(metrics.open.get_or_create(&Called { method: "M" }).get(), 1);
        ok.into_body().collect().await.unwrap();
        assert_eq!(count(&metrics, "OK"), 1);

        drop(metrics.begin("M").through(frame::unary_response(Err(Status::not_found("x")))));
        assert_eq!(count(&metrics, "NOT_FOUND"), 1);

        drop(metrics.begin("M").through(frame::stream_response(stream::pending())));
        drop(metrics.begin("M"));
        assert_eq!(count(&metrics, "gone"), 2);
        assert_eq!(metrics.open.get_or_create(&Called { method: "M" }).get(), 0);
    }
}
