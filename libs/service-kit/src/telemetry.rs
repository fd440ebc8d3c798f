//! Logs, traces and their context.

mod context;

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{ExporterBuildError, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry};

pub use context::{continue_trace, traceparent};

use crate::settings::{LogFormat, LogLevel, LogSettings};

/// What the targets of our own code begin with.
const OURS: &str = "roadstead";
/// How long the last spans may take to reach the collector.
const FLUSH_TIME: Duration = Duration::from_secs(3);

/// Telemetry could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The collector's address.
    #[error("--otlp-endpoint cannot be used: {0}")]
    Endpoint(#[from] ExporterBuildError),
    /// Something in this process logs elsewhere already.
    #[error("logging was started already: {0}")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
}

/// Logging that was started, for the whole process.
#[derive(Debug)]
#[must_use = "the last spans are lost unless it is flushed"]
pub struct Telemetry {
    traces: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// Starts logging, and tracing if a collector is named. Once per process, within the runtime; `service` is the name
    /// that traces go by.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(settings: &LogSettings, service: &str) -> Result<Self, StartError> {
        let LogSettings { log_format, log_level, otlp_endpoint } = settings;
        let traces = otlp_endpoint.as_deref().map(|endpoint| exporter(endpoint, service)).transpose()?;
        let tracer = traces.as_ref().map(|traces| {
            let layer = tracing_opentelemetry::layer().with_tracer(traces.tracer(OURS));
            // The exporter's own calls make spans too; they would never end.
            layer.with_filter(Targets::new().with_target(OURS, LevelFilter::INFO))
        });
        let log = format(*log_format).with_filter(targets((*log_level).into()));
        Registry::default().with(tracer).with(log).try_init()?;
        Ok(Self { traces })
    }

    /// Sends the last spans; to be called when everything else has ended.
    pub async fn flush(self) {
        let Some(traces) = self.traces else { return };
        // Blocks, and needs the runtime to send.
        let flushed = tokio::task::spawn_blocking(move || traces.shutdown_with_timeout(FLUSH_TIME)).await;
        if !matches!(flushed, Ok(Ok(()))) {
            tracing::warn!("the last spans did not reach the collector");
        }
    }
}

/// Which levels of what: ours as asked for, libraries warnings at most, since below that they may quote messages.
fn targets(level: LevelFilter) -> Targets {
    Targets::new().with_default(level.min(LevelFilter::WARN)).with_target(OURS, level)
}

fn format<S>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    match format {
        LogFormat::Text => layer.with_ansi(io::stderr().is_terminal()).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).with_span_list(true).boxed(),
    }
}

fn exporter(endpoint: &str, service: &str) -> Result<SdkTracerProvider, ExporterBuildError> {
    let exporter = opentelemetry_otlp::SpanExporter::builder().with_tonic().with_endpoint(endpoint).build()?;
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder().with_service_name(service.to_owned()).with_attribute(version).build();
    Ok(SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build())
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use axum::routing::post;
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;
    use tokio_stream::wrappers::TcpListenerStream;
    use tonic::service::Routes;
    use tonic::transport::Server;
    use tracing::Level;

    use super::*;

    /// A collector that shows the bodies it is sent.
    async fn collector() -> (String, mpsc::Receiver<Bytes>) {
        let (sent, received) = mpsc::channel(16);
        let export = move |body: Bytes| async move {
            sent.send(body).await.unwrap();
            [("content-type", "application/grpc"), ("grpc-status", "0")]
        };
        let path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
        let routes = Routes::from(axum::Router::new().route(path, post(export)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(Server::builder().add_routes(routes).serve_with_incoming(TcpListenerStream::new(listener)));
        (endpoint, received)
    }

    #[tokio::test]
    async fn the_last_span_reaches_the_collector_before_the_end() {
        let (endpoint, mut received) = collector().await;
        let traces = exporter(&endpoint, "watch").unwrap();
        let subscriber = Registry::default().with(tracing_opentelemetry::layer().with_tracer(traces.tracer(OURS)));
        tracing::subscriber::with_default(subscriber, || drop(tracing::info_span!("the last one").entered()));
        Telemetry { traces: Some(traces) }.flush().await;
        let body = received.try_recv().unwrap();
        let holds = |text: &str| body.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(holds("the last one") && holds("watch"));
    }

    #[tokio::test]
    async fn a_collector_that_is_away_does_not_hold_up_the_end() {
        let traces = exporter("http://127.0.0.1:1", "watch").unwrap();
        let subscriber = Registry::default().with(tracing_opentelemetry::layer().with_tracer(traces.tracer(OURS)));
        tracing::subscriber::with_default(subscriber, || drop(tracing::info_span!("lost").entered()));
        Telemetry { traces: Some(traces) }.flush().await;
    }

    #[test]
    fn an_endpoint_that_is_no_address_is_refused() {
        assert!(exporter("not an address", "watch").is_err());
    }

    #[test]
    fn libraries_never_log_more_than_warnings() {
        let trace = targets(LevelFilter::TRACE);
        assert!(trace.would_enable("roadstead_edge::watch", &Level::TRACE));
        assert!(trace.would_enable("tokio_postgres::query", &Level::WARN));
        assert!(!trace.would_enable("tokio_postgres::query", &Level::INFO));
        let error = targets(LevelFilter::ERROR);
        assert!(!error.would_enable("roadstead_edge", &Level::WARN));
        assert!(!error.would_enable("h2", &Level::WARN));
    }
}
