//! The listener of a door: accepts connections, serves them, and stops within a deadline.
//!
//! The accept loop is ours because three things a ready-made one leaves out decide whether a process stops: a bound on
//! connections that never begin, a bound on the drain, and a cut when it is over.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::front::{Door, Front};
use crate::preface::{self, Protocol};
use crate::stalled::Stalled;
use crate::{reader, tls, unsent};

/// Streams that a peer reset and that this side has not looked at yet; a peer that resets faster is sent away.
pub const PENDING_RESETS: usize = 64;
/// Streams that this side reset for a peer's errors; a peer that errs more often is sent away.
pub const ERRORS: usize = 1024;
/// Bytes of headers that a request may have; they also bound how many frames these may come in.
pub const HEADERS: u32 = 16 * 1024;
/// Bytes of requests that a connection may have on their way to this side, and one stream of it. The first also says
/// how many small frames may wait to be read: the library sends a peer away when 256 bytes for each are more than half
/// of it. So it is large enough for a small request on every stream at once, of which an adapting window, which
/// starts small, takes no more than 150.
pub const CONNECTION_WINDOW: u32 = 1024 * 1024;
pub const STREAM_WINDOW: u32 = 256 * 1024;
/// Bytes of a response that are buffered for a peer that does not read.
pub const SEND_BUFFER: usize = 64 * 1024;
/// How long accepting pauses when the process is out of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Settings of a listener.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// Certificate and key; without them the port speaks plain text.
    pub tls: Option<tls::Files>,
    /// Connections at a time; more are closed at once.
    pub connections: usize,
    /// Streams at a time on one connection.
    pub streams: u32,
    /// How long a connection may take until its protocol, and its TLS, stand; and one of HTTP/1, which has one request,
    /// until its end.
    pub begin: Duration,
    /// How long a connection may be silent before its peer is asked whether it is still there …
    pub ping_every: Duration,
    /// … and how long the answer may take before the connection is closed. A peer that takes nothing of what is
    /// written to it has as long as both.
    pub ping_answer: Duration,
    /// How long open calls may go on once the process stops.
    pub drain: Duration,
}

impl Settings {
    /// The defaults at this address.
    #[must_use]
    pub const fn at(address: SocketAddr) -> Self {
        Self {
            address,
            tls: None,
            connections: 16_384,
            streams: 1024,
            begin: Duration::from_secs(10),
            ping_every: Duration::from_secs(10),
            ping_answer: Duration::from_secs(10),
            drain: Duration::from_secs(20),
        }
    }
}

/// Why a listener could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is taken, or is not one of this machine.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// TLS cannot be offered.
    #[error(transparent)]
    Tls(#[from] tls::Error),
}

/// An open port.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptorDebug>,
    settings: Settings,
}

impl Listener {
    /// Opens the port. Connections wait in the backlog until [`Listener::serve`].
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn bind(settings: Settings) -> Result<Self, Error> {
        let tls = settings.tls.as_ref().map(tls::acceptor).transpose()?.map(TlsAcceptorDebug);
        let bind = |source| Error::Bind { address: settings.address, source };
        let socket = TcpListener::bind(settings.address).await.map_err(bind)?;
        let address = socket.local_addr().map_err(bind)?;
        Ok(Self { socket, address, tls, settings })
    }

    /// The address, with the port that was taken.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `drain` is cancelled and the open connections have ended or the time for that is over.
    pub async fn serve<D: Door>(self, front: Front<D>, drain: CancellationToken) {
        let places = Arc::new(Semaphore::new(self.settings.connections.min(Semaphore::MAX_PERMITS)));
        let cut = CancellationToken::new();
        let _cut_at_the_end = cut.clone().drop_guard();
        let tasks = TaskTracker::new();
        let serving = Serving {
            streams: Streams { tasks: tasks.clone(), cut: cut.clone(), given_up: front.metrics().given_up.clone() },
            front,
            tls: self.tls.map(|tls| tls.0),
            settings: Arc::new(self.settings.clone()),
            drain: drain.clone(),
        };
        loop {
            let accepted = tokio::select! {
                biased;
                () = drain.cancelled() => break,
                accepted = self.socket.accept() => accepted,
            };
            match accepted {
                Ok((socket, _)) => match Arc::clone(&places).try_acquire_owned() {
                    Ok(place) => {
                        let connection = Box::pin(serving.clone().connection(socket, place));
                        let cut = cut.clone();
                        tasks.spawn(async move { cut.run_until_cancelled(connection).await });
                    }
                    Err(_) => {
                        serving.front.metrics().turned_away.inc();
                    }
                },
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections; trying on");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        drop(self.socket);
        tasks.close();
        if tokio::time::timeout(self.settings.drain, tasks.wait()).await.is_err() {
            tracing::warn!(open = tasks.len(), "the time to drain is over; cutting what is still open");
            cut.cancel();
            tasks.wait().await;
        }
    }
}

/// An error that concerns the connection that was to be accepted, not the listener.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// What a connection needs.
struct Serving<D> {
    front: Front<D>,
    streams: Streams,
    tls: Option<TlsAcceptor>,
    settings: Arc<Settings>,
    drain: CancellationToken,
}

impl<D> Clone for Serving<D> {
    fn clone(&self) -> Self {
        Self {
            front: self.front.clone(),
            streams: self.streams.clone(),
            tls: self.tls.clone(),
            settings: Arc::clone(&self.settings),
            drain: self.drain.clone(),
        }
    }
}

impl<D: Door> Serving<D> {
    /// Serves one connection to its end.
    async fn connection(self, socket: TcpStream, _place: OwnedSemaphorePermit) {
        let connections = self.front.metrics().connections.clone();
        connections.inc();
        let ended = self.begin_and_serve(socket).await;
        connections.dec();
        if let Err(error) = ended {
            tracing::debug!(?error, "a connection ended");
        }
    }

    async fn begin_and_serve(&self, socket: TcpStream) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        socket.set_nodelay(true)?;
        unsent::bound(&socket)?;
        let socket = Stalled::after(self.settings.ping_every + self.settings.ping_answer, socket);
        match &self.tls {
            Some(acceptor) => {
                // Boxed, so that a connection in plain text is not as large as one with TLS.
                Box::pin(async move {
                    let begun = async { preface::read(acceptor.accept(socket).await?).await };
                    let (protocol, stream) = Box::pin(self.begin(begun)).await?;
                    self.serve(protocol, stream).await
                })
                .await
            }
            None => {
                let begun = Box::pin(self.begin(preface::read(socket))).await?;
                self.serve(begun.0, begun.1).await
            }
        }
    }

    /// Waits for the beginning of a connection, but not long, and not when the process stops.
    async fn begin<T>(&self, beginning: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let begun = tokio::select! {
            () = self.drain.cancelled() => Err(io::ErrorKind::ConnectionAborted.into()),
            begun = tokio::time::timeout(self.settings.begin, beginning) => begun.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
        };
        if begun.is_err() {
            self.front.metrics().turned_away.inc();
        }
        begun
    }

    async fn serve<S>(&self, protocol: Protocol, stream: S) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let io = TokioIo::new(stream);
        match protocol {
            Protocol::Http2 => {
                let connection = http2::Builder::new(self.streams.clone())
                    .timer(TokioTimer::new())
                    .initial_connection_window_size(CONNECTION_WINDOW)
                    .initial_stream_window_size(STREAM_WINDOW)
                    .keep_alive_interval(self.settings.ping_every)
                    .keep_alive_timeout(self.settings.ping_answer)
                    .max_concurrent_streams(self.settings.streams)
                    .max_pending_accept_reset_streams(PENDING_RESETS)
                    .max_local_error_reset_streams(ERRORS)
                    .max_header_list_size(HEADERS)
                    .max_send_buf_size(SEND_BUFFER)
                    .serve_connection(io, self.front.clone());
                // Boxed, here and below, so that an idle connection is as small as its own protocol allows.
                let mut connection = Box::pin(connection);
                tokio::select! {
                    ended = connection.as_mut() => return Ok(ended?),
                    () = self.drain.cancelled() => connection.as_mut().graceful_shutdown(),
                }
                Ok(connection.await?)
            }
            // A page or two for health checks: one request a connection.
            Protocol::Http1 => {
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(self.settings.begin)
                    .max_buf_size(HEADERS as usize)
                    .keep_alive(false)
                    .serve_connection(io, self.front.clone());
                Ok(tokio::time::timeout(self.settings.begin, Box::pin(connection)).await??)
            }
        }
    }
}

/// Runs the streams of connections, each only as long as its peer takes what it is sent.
#[derive(Clone)]
struct Streams {
    tasks: TaskTracker,
    cut: CancellationToken,
    given_up: Counter,
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let (cut, given_up) = (self.cut.clone(), self.given_up.clone());
        self.tasks.spawn(async move {
            if let Some(Err(reader::GivenUp)) = cut.run_until_cancelled(reader::run(stream)).await {
                given_up.inc();
            }
        });
    }
}

/// An acceptor, which has no `Debug` of its own.
struct TlsAcceptorDebug(TlsAcceptor);

impl std::fmt::Debug for TlsAcceptorDebug {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("TlsAcceptor")
    }
}
