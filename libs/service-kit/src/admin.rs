//! The admin port: `/livez`, `/readyz` and `/metrics`.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::readiness::Readiness;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// How long requests that are being answered may take once the port is told to close.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// The port could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on the admin address {address}: {source}")]
pub struct BindError {
    address: SocketAddr,
    source: io::Error,
}

/// An open admin port that nobody answers yet.
#[derive(Debug)]
pub struct AdminPort {
    listener: TcpListener,
    address: SocketAddr,
}

#[derive(Clone)]
struct Shown {
    readiness: Readiness,
    metrics: Metrics,
}

#[derive(Serialize)]
struct Ready {
    ready: bool,
    waiting_for: Vec<&'static str>,
}

impl AdminPort {
    /// Opens the port; port 0 lets the system choose one.
    ///
    /// # Errors
    /// If it is taken or not ours to open.
    pub async fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let failed = |source| BindError { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Where it is.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until told to stop.
    ///
    /// # Errors
    /// If the listener fails.
    pub async fn serve(self, readiness: Readiness, metrics: Metrics, stop: CancellationToken) -> io::Result<()> {
        let router = Router::new()
            .route("/livez", get(|| async { "alive\n" }))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics_text))
            .with_state(Shown { readiness, metrics });
        let answering = axum::serve(self.listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
        // A peer that never finishes its request holds nothing up.
        let overtime = async {
            stop.cancelled().await;
            tokio::time::sleep(LAST_ANSWERS).await;
        };
        tokio::select! {
            answered = answering => answered,
            () = overtime => Ok(()),
        }
    }
}

async fn readyz(State(shown): State<Shown>) -> impl IntoResponse {
    let waiting_for = shown.readiness.waiting_for();
    let ready = waiting_for.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Ready { ready, waiting_for }))
}

async fn metrics_text(State(shown): State<Shown>) -> impl IntoResponse {
    match shown.metrics.text() {
        Ok(text) => (StatusCode::OK, [(CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
