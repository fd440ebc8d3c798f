//! The admin port: `/livez`, `/readyz` and `/metrics`.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::metrics::Metrics;
use crate::readiness::Readiness;

const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
/// Connections at a time; a further one takes the place of the oldest, so that probes are heard whoever else is there.
pub const CONNECTIONS: usize = 64;
/// How long one connection may take: it has one request, and its answer.
pub const CONNECTION_TIME: Duration = Duration::from_secs(5);
/// Bytes of a request, of which only the head counts here.
pub const REQUEST: usize = 16 * 1024;
/// How long accepting pauses when the process is out of descriptors.
const PAUSE: Duration = Duration::from_millis(50);
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

    /// Answers until told to stop. A peer that is slow to ask or to listen is let go after a few seconds.
    pub async fn serve(self, readiness: Readiness, metrics: Metrics, stop: CancellationToken) {
        let shown = Shown { readiness, metrics };
        let tasks = TaskTracker::new();
        let accepting = async {
            let mut places = VecDeque::with_capacity(CONNECTIONS + 1);
            loop {
                match self.listener.accept().await {
                    Ok((socket, _)) => {
                        let (over, answering) = (CancellationToken::new(), answer(socket, shown.clone()));
                        places.push_back(over.clone());
                        tasks.spawn(async move { over.run_until_cancelled(answering).await });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection at the admin port; trying on");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
                if places.len() > CONNECTIONS
                    && let Some(oldest) = places.pop_front()
                {
                    oldest.cancel();
                }
            }
        };
        let _never = stop.run_until_cancelled(accepting).await;
        drop(self.listener);
        tasks.close();
        if tokio::time::timeout(LAST_ANSWERS, tasks.wait()).await.is_err() {
            tracing::debug!(open = tasks.len(), "requests at the admin port were not answered in time");
        }
    }
}

/// Answers the one request of a connection.
async fn answer(socket: TcpStream, shown: Shown) {
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let response = shown.page(request.method(), request.uri().path());
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(CONNECTION_TIME)
        .max_buf_size(REQUEST)
        .keep_alive(false)
        .serve_connection(TokioIo::new(socket), service);
    match tokio::time::timeout(CONNECTION_TIME, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection to the admin port ended"),
        Err(_) => tracing::debug!("a connection to the admin port took too long"),
    }
}

impl Shown {
    fn page(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        if method != Method::GET && method != Method::HEAD {
            return page(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "method not allowed\n");
        }
        match path {
            "/livez" => page(StatusCode::OK, PLAIN, "alive\n"),
            "/readyz" => self.ready(),
            "/metrics" => match self.metrics.text() {
                Ok(text) => page(StatusCode::OK, OPEN_METRICS, text),
                Err(_) => page(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, "the metrics cannot be written\n"),
            },
            _ => page(StatusCode::NOT_FOUND, PLAIN, "not found\n"),
        }
    }

    fn ready(&self) -> Response<Full<Bytes>> {
        let waiting_for = self.readiness.waiting_for();
        let ready = waiting_for.is_empty();
        let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        page(status, JSON, serde_json::to_vec(&Ready { ready, waiting_for }).unwrap_or_default())
    }
}

fn page(status: StatusCode, kind: HeaderValue, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
