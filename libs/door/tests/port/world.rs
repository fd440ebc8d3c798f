//! A port with a door behind it that answers a few methods, each in its own way.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use prost::Message as _;
use roadstead_door::auth::{Chain, LocalDev};
use roadstead_door::listener::{Listener, Settings};
use roadstead_door::metrics::Metrics;
use roadstead_door::{Call, Door, Front, Health, Limits, Reply, drain, frame, others};
use roadstead_proto::api::v1::open_shell_client::OpenShellClient;
use roadstead_proto::api::v1::{HealthResponse, SandboxResponse, WatchSandboxRequest};
use roadstead_proto::method::Method;
use roadstead_testkit::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::transport::Channel;

pub(crate) const SOON: Duration = Duration::from_secs(10);
/// Bytes of the answer to `ListWorkspaces`.
pub(crate) const PAGE: usize = 3 * 1024 * 1024;

struct TestDoor {
    drain: CancellationToken,
    events: Arc<AtomicU64>,
}

impl Door for TestDoor {
    async fn unary(&self, call: Call, request: Bytes) -> Result<Reply, Status> {
        match call.method {
            Method::Health => Ok(Reply::new(HealthResponse { version: "test".to_owned(), status: 1 }.encode_to_vec())),
            // Sends back what it got, field by field the same bytes.
            Method::CreateSandbox => Ok(Reply::new(request)),
            Method::GetSandbox => {
                tokio::time::sleep(Duration::from_millis(300)).await;
                Ok(Reply::new(SandboxResponse::default().encode_to_vec()))
            }
            Method::GetWorkspace => panic!("a fault in the test's door"),
            Method::ListWorkspaces => Ok(Reply::new(vec![0; PAGE])),
            _ => std::future::pending().await,
        }
    }

    /// Silent, or with `follow_logs` events without end.
    async fn stream(
        &self,
        _: Call,
        request: http::Request<tonic::body::Body>,
    ) -> Result<http::Response<tonic::body::Body>, Status> {
        let request = frame::read_message(request.into_body(), 1024).await?;
        let endless = WatchSandboxRequest::decode(request).unwrap().follow_logs;
        let events = Arc::clone(&self.events);
        let events = stream::repeat_with(move || {
            events.fetch_add(1, Ordering::Relaxed);
            Ok(Bytes::from_static(&[0; 1000]))
        });
        let response = match endless {
            true => frame::stream_response(events),
            false => frame::stream_response(events.take(0).chain(stream::pending())),
        };
        Ok(drain::until(response, self.drain.clone(), None))
    }

    fn health(&self) -> Health {
        Health { ready: true, checks: serde_json::Map::new() }
    }
}

pub(crate) struct Port {
    pub(crate) address: SocketAddr,
    drain: CancellationToken,
    serving: JoinHandle<()>,
    registry: Registry,
    events: Arc<AtomicU64>,
}

/// The defaults, at a free port.
pub(crate) fn settings() -> Settings {
    Settings::at(([127, 0, 0, 1], 0).into())
}

impl Port {
    pub(crate) async fn open(drain_time: Duration) -> Self {
        Self::with(Settings { drain: drain_time, ..settings() }).await
    }

    pub(crate) async fn with(settings: Settings) -> Self {
        Self::limited(settings, Limits::default()).await
    }

    pub(crate) async fn limited(settings: Settings, limits: Limits) -> Self {
        let listener = Listener::bind(settings).await.unwrap();
        let (address, drain) = (listener.address(), CancellationToken::new());
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let (_, others) = others::services().unwrap();
        let events = Arc::default();
        let door = TestDoor { drain: drain.clone(), events: Arc::clone(&events) };
        let chain = Chain::new().then(LocalDev);
        let front = Front::new(door, chain, limits, metrics, others, drain.clone(), "test");
        let serving = tokio::spawn(listener.serve(front, drain.clone()));
        Self { address, drain, serving, registry, events }
    }

    pub(crate) async fn client(&self) -> OpenShellClient<Channel> {
        let channel = Channel::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap();
        OpenShellClient::new(channel)
    }

    /// How many events of endless streams were asked for by the transport.
    pub(crate) fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    /// The value of a metric; 0 if there is none.
    pub(crate) fn metric(&self, series: &str) -> u64 {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse().unwrap())
    }

    /// Waits until a metric has this value.
    pub(crate) async fn shows(&self, series: &str, value: u64) {
        eventually(SOON, &format!("{series} is {value}"), || async {
            let shown = self.metric(series);
            if shown == value { Ok(()) } else { Err(shown) }
        })
        .await;
    }

    /// Begins to stop.
    pub(crate) fn drain(&self) {
        self.drain.cancel();
    }

    /// Stops, and says how long that took.
    pub(crate) async fn stop(self) -> Duration {
        let began = Instant::now();
        self.drain.cancel();
        timeout(SOON, self.serving).await.expect("the port must close").unwrap();
        began.elapsed()
    }
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: door\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(SOON, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    answer
}
