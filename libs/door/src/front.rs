//! What stands before every call: it is identified, counted, traced and timed, its caller is recognised and held
//! against the method's rule, and a panic behind it becomes a status.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use roadstead_proto::method::{AuthMode, Method};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tower::util::BoxCloneSyncService;
use tower::{Service as _, ServiceExt as _};
use tracing::Instrument as _;

use crate::auth::{Chain, Standing, check};
use crate::call::{Call, Reply};
use crate::deadline::{self, Deadline};
use crate::metrics::Metrics;
use crate::plain_http::{self, Health};
use crate::unread::Unread;
use crate::{drain, frame, reader, request_id, revision, trace};

const PREFIX: &str = "/openshell.v1.OpenShell/";
const HEALTH: &str = "/grpc.health.v1.Health/";
/// How much longer than its deadline a unary call may take, so that what is behind the door can say why it ended.
const GRACE: Duration = Duration::from_secs(1);

/// A door: what happens to a call once its caller is known.
pub trait Door: Send + Sync + 'static {
    /// Answers a unary call.
    fn unary(&self, call: Call, request: Bytes) -> impl Future<Output = Result<Reply, Status>> + Send;

    /// Answers a call of a method of which one side, or both, streams.
    fn stream(
        &self,
        call: Call,
        request: Request<tonic::body::Body>,
    ) -> impl Future<Output = Result<Response<tonic::body::Body>, Status>> + Send;

    /// How the door is, for `/readyz`.
    fn health(&self) -> Health;
}

/// The other services of a port: `grpc.health.v1` and reflection.
pub type OtherServices = BoxCloneSyncService<Request<tonic::body::Body>, Response<tonic::body::Body>, Infallible>;

/// Limits of a front.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest request message, in bytes.
    pub message: usize,
    /// Unary calls at a time.
    pub calls: usize,
    /// Bytes of responses that wait for their clients, together.
    pub unread: usize,
    /// How long a client may take for each piece of 16 KiB of a response …
    pub piece_time: Duration,
    /// … and for the whole answer to a unary call.
    pub answer_time: Duration,
    /// Streams of `grpc.health.v1` at a time, and as many of reflection: nobody need say who they are to open one.
    pub open_streams: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message: 1024 * 1024,
            calls: 8192,
            unread: 64 * 1024 * 1024,
            piece_time: Duration::from_secs(60),
            answer_time: Duration::from_secs(120),
            open_streams: 1024,
        }
    }
}

/// Whether both sides of the method send exactly one message.
#[must_use]
pub const fn is_unary(method: Method) -> bool {
    !matches!(
        method,
        Method::ExecSandbox
            | Method::ForwardTcp
            | Method::ExecSandboxInteractive
            | Method::PushSandboxLogs
            | Method::ConnectSupervisor
            | Method::RelayStream
            | Method::PeerRelay
            | Method::WatchSandbox
    )
}

/// Whether the client sends exactly one message, so that the end of its request is near.
const fn asks_once(method: Method) -> bool {
    is_unary(method) || matches!(method, Method::ExecSandbox | Method::WatchSandbox)
}

/// Stands before a door.
pub struct Front<D> {
    inner: Arc<Inner<D>>,
}

struct Inner<D> {
    door: D,
    chain: Arc<Chain>,
    limits: Limits,
    calls: Semaphore,
    unread: Unread,
    health_streams: Arc<Semaphore>,
    reflections: Arc<Semaphore>,
    metrics: Metrics,
    others: OtherServices,
    drain: CancellationToken,
    version: &'static str,
}

impl<D> Clone for Front<D> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<D> std::fmt::Debug for Front<D> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Front").field("chain", &self.inner.chain).finish_non_exhaustive()
    }
}

impl<D: Door> Front<D> {
    /// Puts a front before `door`. `drain` ends the streams of the other services; the door ends its own.
    pub fn new(
        door: D,
        chain: impl Into<Arc<Chain>>,
        limits: Limits,
        metrics: Metrics,
        others: OtherServices,
        drain: CancellationToken,
        version: &'static str,
    ) -> Self {
        let inner = Inner {
            door,
            chain: chain.into(),
            limits,
            calls: Semaphore::new(limits.calls.min(Semaphore::MAX_PERMITS)),
            unread: Unread::new(limits.unread),
            health_streams: Arc::new(Semaphore::new(limits.open_streams.min(Semaphore::MAX_PERMITS))),
            reflections: Arc::new(Semaphore::new(limits.open_streams.min(Semaphore::MAX_PERMITS))),
            metrics,
            others,
            drain,
            version,
        };
        Self { inner: Arc::new(inner) }
    }

    /// The metrics of this front.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// Answers one request.
    pub async fn answer(self, request: Request<tonic::body::Body>) -> Response<tonic::body::Body> {
        let id = request_id::of(request.headers());
        let is_grpc =
            request.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        let mut response = if is_grpc {
            self.inner.grpc(&id, request).await
        } else {
            plain_http::answer(request.method(), request.uri().path(), self.inner.version, || self.inner.door.health())
        };
        response.headers_mut().insert(request_id::HEADER, id);
        response
    }
}

impl<D: Door> Inner<D> {
    async fn grpc(&self, id: &HeaderValue, request: Request<tonic::body::Body>) -> Response<tonic::body::Body> {
        let path = request.uri().path();
        let Some(name) = path.strip_prefix(PREFIX) else {
            if let Some(refusal) = revision::other(path) {
                return self.metrics.begin("unknown").through(refusal.into_http());
            }
            let observed = self.metrics.begin("other");
            let response = drain::until(self.other(request).await, self.drain.clone(), None);
            return observed.through(self.bounded(response, None));
        };
        let Some(method) = Method::from_name(name) else {
            return self.metrics.begin("unknown").through(revision::no_such_method(name).into_http());
        };
        let id = id.to_str().unwrap_or_default().to_owned();
        let (span, traceparent) = trace::begin(request.headers(), method.name(), &id);
        let observed = self.metrics.begin(method.name());
        let answering = AssertUnwindSafe(self.call(method, id, traceparent, request)).catch_unwind().instrument(span);
        let response = answering.await.unwrap_or_else(|_| {
            tracing::error!(method = method.name(), "a call panicked");
            Status::internal("an internal error").into_http()
        });
        let end = is_unary(method).then(|| Instant::now() + self.limits.answer_time);
        observed.through(self.bounded(response, end))
    }

    /// Holds the client to taking the response.
    fn bounded(&self, response: Response<tonic::body::Body>, end: Option<Instant>) -> Response<tonic::body::Body> {
        reader::bounded(response, &self.unread, self.limits.piece_time, end)
    }

    async fn call(
        &self,
        method: Method,
        request_id: String,
        traceparent: String,
        request: Request<tonic::body::Body>,
    ) -> Response<tonic::body::Body> {
        let (standing, deadline) = match self.admit(method, request.headers()).await {
            Ok(admitted) => admitted,
            Err(refusal) => {
                if asks_once(method) {
                    frame::discard(request.into_body()).await;
                }
                return refusal.into_http();
            }
        };
        let principal = standing.as_ref().map(Standing::principal).cloned();
        let call = Call { method, principal, standing, deadline, request_id, traceparent };
        if is_unary(method) {
            frame::unary_response(self.unary(call, request).await.map(|reply| (reply.message, reply.metadata)))
        } else {
            self.door.stream(call, request).await.unwrap_or_else(Status::into_http)
        }
    }

    /// What can be said of a call by its headers: who calls, that it may be, and by when it is to be answered.
    async fn admit(&self, method: Method, headers: &HeaderMap) -> Result<(Option<Standing>, Deadline), Status> {
        let timeout = deadline::of(headers).map_err(|malformed| Status::invalid_argument(malformed.to_string()))?;
        let deadline = Deadline::after(timeout.unwrap_or(deadline::DEFAULT).min(deadline::LONGEST));
        let rule = method.rule();
        if rule.auth == AuthMode::Unauthenticated {
            return Ok((None, deadline));
        }
        let standing = self.chain.recognise(method, headers).await?;
        // Methods between gateways are served to nobody, and every door says that.
        if rule.auth != AuthMode::Peer {
            check(&rule, standing.principal())?;
        }
        Ok((Some(standing), deadline))
    }

    async fn unary(&self, call: Call, request: Request<tonic::body::Body>) -> Result<Reply, Status> {
        let _permit = match self.permit() {
            Ok(permit) => permit,
            Err(refusal) => {
                frame::discard(request.into_body()).await;
                return Err(refusal);
            }
        };
        let end = call.deadline.instant;
        let message = tokio::time::timeout_at(end, frame::read_message(request.into_body(), self.limits.message))
            .await
            .map_err(|_| Status::deadline_exceeded("the request did not arrive in time"))??;
        tokio::time::timeout_at(end + GRACE, self.door.unary(call, message))
            .await
            .map_err(|_| Status::deadline_exceeded("the deadline has passed"))?
    }

    fn permit(&self) -> Result<SemaphorePermit<'_>, Status> {
        self.calls.try_acquire().map_err(|_| crate::status::busy("this process has too many calls open"))
    }

    async fn other(&self, request: Request<tonic::body::Body>) -> Response<tonic::body::Body> {
        let places = match request.uri().path().strip_prefix(HEALTH) {
            // Answered at once, and by it balancers judge this process.
            Some("Check") => None,
            Some(_) => Some(&self.health_streams),
            None => Some(&self.reflections),
        };
        let place = match places.map(|places| Arc::clone(places).try_acquire_owned()).transpose() {
            Ok(place) => place,
            Err(_) => return crate::status::busy("too many streams of this service are open").into_http(),
        };
        let mut others = self.others.clone();
        let response = match others.ready().await {
            Ok(ready) => ready.call(request).await.unwrap_or_else(|never| match never {}),
            Err(never) => match never {},
        };
        response.map(|body| {
            tonic::body::Body::new(body.map_frame(move |frame| {
                let _held = &place;
                frame
            }))
        })
    }
}

impl<D: Door, B> hyper::service::Service<Request<B>> for Front<D>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<B>) -> Self::Future {
        let front = self.clone();
        Box::pin(async move { Ok(front.answer(request.map(tonic::body::Body::new)).await) })
    }
}
