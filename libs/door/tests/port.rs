//! The port of a door, from outside: a real client on a real connection.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails panics")]

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::uri::PathAndQuery;
use prometheus_client::registry::Registry;
use prost::Message as _;
use roadstead_door::auth::{Chain, LocalDev};
use roadstead_door::listener::{Listener, Settings};
use roadstead_door::metrics::Metrics;
use roadstead_door::{Call, Door, Front, Health, Limits, Reply, drain, frame, others};
use roadstead_proto::api::v1::open_shell_client::OpenShellClient;
use roadstead_proto::api::v1::{
    CreateSandboxRequest, GetSandboxRequest, GetWorkspaceRequest, HealthRequest, HealthResponse, ListSandboxesRequest,
    SandboxResponse, WatchSandboxRequest,
};
use roadstead_proto::method::Method;
use roadstead_testkit::Proxy;
use roadstead_testkit::proxy::Direction;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;

const SOON: Duration = Duration::from_secs(10);

/// Answers a few methods, each in its own way.
struct TestDoor {
    drain: CancellationToken,
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
            _ => std::future::pending().await,
        }
    }

    async fn stream(
        &self,
        _: Call,
        request: http::Request<tonic::body::Body>,
    ) -> Result<http::Response<tonic::body::Body>, Status> {
        frame::read_message(request.into_body(), 1024).await?;
        Ok(drain::until(frame::stream_response(stream::pending()), self.drain.clone(), None))
    }

    fn health(&self) -> Health {
        Health { ready: true, checks: serde_json::Map::new() }
    }
}

struct Port {
    address: SocketAddr,
    drain: CancellationToken,
    serving: JoinHandle<()>,
}

impl Port {
    async fn open(drain_time: Duration) -> Self {
        Self::with(Settings { drain: drain_time, ..Settings::at(([127, 0, 0, 1], 0).into()) }).await
    }

    async fn with(settings: Settings) -> Self {
        let listener = Listener::bind(settings).await.unwrap();
        let (address, drain) = (listener.address(), CancellationToken::new());
        let metrics = Metrics::register(&mut Registry::default());
        let (_, others) = others::services().unwrap();
        let door = TestDoor { drain: drain.clone() };
        let chain = Chain::new().then(LocalDev);
        let front = Front::new(door, chain, Limits::default(), metrics, others, drain.clone(), "test");
        let serving = tokio::spawn(listener.serve(front, drain.clone()));
        Self { address, drain, serving }
    }

    async fn client(&self) -> OpenShellClient<Channel> {
        let channel = Channel::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap();
        OpenShellClient::new(channel)
    }

    /// Stops, and says how long that took.
    async fn stop(self) -> Duration {
        let began = Instant::now();
        self.drain.cancel();
        timeout(SOON, self.serving).await.expect("the port must close").unwrap();
        began.elapsed()
    }
}

async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: door\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(SOON, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    answer
}

#[tokio::test]
async fn one_port_speaks_grpc_and_plain_http() {
    let port = Port::open(SOON).await;
    let answer = port.client().await.health(HealthRequest {}).await.unwrap();
    assert!(answer.metadata().get("x-request-id").is_some());
    assert_eq!(answer.into_inner().version, "test");

    let page = get(port.address, "/healthz").await;
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("x-request-id"), "{page}");
    assert!(get(port.address, "/readyz").await.contains("\"version\":\"test\""));
    assert!(get(port.address, "/nothing").await.starts_with("HTTP/1.1 404"));
}

#[tokio::test]
async fn a_request_reaches_the_door_byte_for_byte_unknown_fields_included() {
    let port = Port::open(SOON).await;
    let channel = Channel::from_shared(format!("http://{}", port.address)).unwrap().connect().await.unwrap();
    let mut message = CreateSandboxRequest { name: "s".to_owned(), ..Default::default() }.encode_to_vec();
    message.extend([0xf8, 0x3f, 1]);
    let sent = [&[0, 0, 0, 0, u8::try_from(message.len()).unwrap()][..], &message].concat();

    use tower::{Service as _, ServiceExt as _};
    let request = http::Request::post(format!("http://{}/openshell.v1.OpenShell/CreateSandbox", port.address))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(tonic::body::Body::new(http_body_util::Full::new(Bytes::from(sent.clone()))))
        .unwrap();
    let mut channel = channel;
    let response = channel.ready().await.unwrap().call(request).await.unwrap();
    let received = http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
    assert_eq!(received.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(received.to_bytes(), sent);
}

#[tokio::test]
async fn the_clients_request_id_is_repeated_also_on_refusals() {
    let port = Port::open(SOON).await;
    let mut request = Request::new(GetWorkspaceRequest::default());
    request.metadata_mut().insert("x-request-id", "mine".parse().unwrap());
    let refused = port.client().await.get_workspace(request).await.unwrap_err();
    assert_eq!(refused.metadata().get("x-request-id").unwrap(), "mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_and_its_streams_outlive_any_number_of_refused_calls() {
    let port = Port::open(SOON).await;
    // Answers come late, so that the rest of a request is on its way when it is refused.
    let proxy = Proxy::before(port.address).await;
    proxy.slow(Direction::ToClient, Duration::from_millis(20));
    let channel = Channel::from_shared(format!("http://{}", proxy.address())).unwrap().connect().await.unwrap();
    let mut client = OpenShellClient::new(channel.clone());
    let mut events = client.watch_sandbox(WatchSandboxRequest::default()).await.unwrap().into_inner();
    for _ in 0..100 {
        let refused = (0..20).map(|_| {
            let mut grpc = Grpc::new(channel.clone());
            async move {
                let late = stream::once(async {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    GetSandboxRequest::default()
                });
                let mut request = Request::new(late);
                request.metadata_mut().insert("authorization", "Bearer wrong".parse().unwrap());
                let codec = ProstCodec::<GetSandboxRequest, SandboxResponse>::default();
                grpc.ready().await.unwrap();
                let path = PathAndQuery::from_static(Method::GetSandbox.full_path());
                grpc.client_streaming(request, path, codec).await.unwrap_err().code()
            }
        });
        let codes = futures_util::future::join_all(refused).await;
        assert!(codes.iter().all(|code| *code == Code::Unauthenticated), "{codes:?}");
    }
    let ended = timeout(Duration::from_millis(200), events.message()).await;
    assert!(ended.is_err(), "the stream beside them ended: {ended:?}");
    port.stop().await;
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused_and_the_connection_lives_on() {
    let port = Port::open(SOON).await;
    let mut client = port.client().await;
    let name = "x".repeat(1024 * 1024);
    let refused = client.create_sandbox(CreateSandboxRequest { name, ..Default::default() }).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("the limit is 1048576"), "{}", refused.message());
    client.health(HealthRequest {}).await.unwrap();
}

#[tokio::test]
async fn a_panic_is_told_as_an_internal_error_and_nothing_of_it() {
    let port = Port::open(SOON).await;
    let mut client = port.client().await;
    let failed = client.get_workspace(GetWorkspaceRequest::default()).await.unwrap_err();
    assert_eq!((failed.code(), failed.message()), (Code::Internal, "an internal error"));
    client.health(HealthRequest {}).await.unwrap();
}

#[tokio::test]
async fn a_call_ends_soon_after_the_deadline_its_client_set() {
    let port = Port::open(SOON).await;
    // By hand, for a client that does not end the call by itself.
    let mut stream = TcpStream::connect(port.address).await.unwrap();
    let request = "POST /openshell.v1.OpenShell/ListSandboxes HTTP/1.1\r\nHost: door\r\ngrpc-timeout: 50m\r\n\
                   content-type: application/grpc\r\ncontent-length: 5\r\n\r\n\0\0\0\0\0";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(SOON, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.contains("grpc-status: 4"), "{answer}");
}

#[tokio::test]
async fn methods_that_do_not_exist_are_not_implemented() {
    let port = Port::open(SOON).await;
    let mut client = tonic::client::Grpc::new(
        Channel::from_shared(format!("http://{}", port.address)).unwrap().connect().await.unwrap(),
    );
    for path in ["/openshell.v1.OpenShell/Nothing", "/other.Service/Method"] {
        client.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<HealthRequest, HealthResponse>::default();
        let refused = client.unary(Request::new(HealthRequest {}), path.parse().unwrap(), codec).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unimplemented, "{path}");
    }
}

#[tokio::test]
async fn health_and_reflection_are_open() {
    use tonic_health::pb::health_client::HealthClient;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

    let port = Port::open(SOON).await;
    let channel = Channel::from_shared(format!("http://{}", port.address)).unwrap().connect().await.unwrap();
    HealthClient::new(channel.clone()).check(tonic_health::pb::HealthCheckRequest::default()).await.unwrap();

    let ask = tonic_reflection::pb::v1::ServerReflectionRequest {
        message_request: Some(MessageRequest::ListServices(String::new())),
        ..Default::default()
    };
    let mut answers =
        ServerReflectionClient::new(channel).server_reflection_info(stream::iter([ask])).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(services)) = answer.message_response else { panic!("a list") };
    assert!(services.service.iter().any(|service| service.name == "openshell.v1.OpenShell"));
}

#[tokio::test]
async fn a_stop_lets_calls_finish_ends_streams_and_ignores_the_silent() {
    let port = Port::open(SOON).await;
    let _silent = TcpStream::connect(port.address).await.unwrap();
    let mut half_a_preface = TcpStream::connect(port.address).await.unwrap();
    half_a_preface.write_all(b"PRI * HT").await.unwrap();

    let mut client = port.client().await;
    let mut watch = client.watch_sandbox(WatchSandboxRequest::default()).await.unwrap().into_inner();
    let calling = tokio::spawn({
        let mut client = client.clone();
        async move { client.get_sandbox(GetSandboxRequest::default()).await.map(Response::into_inner) }
    });
    // The call is open once a later one on the same connection was answered.
    client.health(HealthRequest {}).await.unwrap();

    let address = port.address;
    let stopping = tokio::spawn(port.stop());
    assert_eq!(timeout(SOON, watch.message()).await.unwrap().unwrap_err().code(), Code::Unavailable);
    assert_eq!(calling.await.unwrap().unwrap(), SandboxResponse::default());
    stopping.await.unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn what_does_not_end_is_cut_when_the_time_is_over() {
    let port = Port::open(Duration::from_millis(200)).await;
    let mut client = port.client().await;
    let calling = tokio::spawn({
        let mut client = client.clone();
        async move { client.list_sandboxes(ListSandboxesRequest::default()).await }
    });
    client.health(HealthRequest {}).await.unwrap();
    assert!(port.stop().await < Duration::from_secs(5));
    assert!(calling.await.unwrap().is_err());
}

#[tokio::test]
async fn a_peer_that_answers_no_ping_is_let_go_and_one_that_does_is_kept() {
    let (every, answer) = (Duration::from_millis(100), Duration::from_millis(300));
    let settings = Settings { ping_every: every, ping_answer: answer, ..Settings::at(([127, 0, 0, 1], 0).into()) };
    let port = Port::with(settings).await;
    let mut client = port.client().await;
    let mut watch = client.watch_sandbox(WatchSandboxRequest::default()).await.unwrap().into_inner();

    let mut silent = TcpStream::connect(port.address).await.unwrap();
    silent.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut heard = Vec::new();
    // Ends with the connection; a reset is an end too.
    let _reset = timeout(SOON, silent.read_to_end(&mut heard)).await.expect("the connection is closed");

    let quiet = timeout(every + answer, watch.message()).await;
    assert!(quiet.is_err(), "the stream of a healthy client goes on: {quiet:?}");
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_at_once() {
    let settings = Settings { connections: 1, ..Settings::at(([127, 0, 0, 1], 0).into()) };
    let port = Port::with(settings).await;
    let mut client = port.client().await;
    client.health(HealthRequest {}).await.unwrap();
    let mut second = TcpStream::connect(port.address).await.unwrap();
    let ended = timeout(SOON, second.read(&mut [0; 1])).await.expect("the connection is closed");
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    client.health(HealthRequest {}).await.unwrap();
}

#[tokio::test]
async fn with_a_certificate_the_port_speaks_tls_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let files = roadstead_door::tls::Files { certificate, key };
    let settings = Settings { tls: Some(files), ..Settings::at(([127, 0, 0, 1], 0).into()) };
    let port = Port::with(settings).await;

    let ca = tonic::transport::Certificate::from_pem(made.cert.pem());
    let tls = tonic::transport::ClientTlsConfig::new().ca_certificate(ca).domain_name("localhost");
    let endpoint = Channel::from_shared(format!("https://{}", port.address)).unwrap().tls_config(tls).unwrap();
    let channel = endpoint.connect().await.unwrap();
    OpenShellClient::new(channel).health(HealthRequest {}).await.unwrap();

    let mut plain = TcpStream::connect(port.address).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: door\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    // Ends with the connection; a reset is an end too.
    let _reset = timeout(SOON, plain.read_to_end(&mut answer)).await.expect("the connection is closed");
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_named() {
    let files = roadstead_door::tls::Files { certificate: "/nowhere/cert.pem".into(), key: "/nowhere/key.pem".into() };
    let settings = Settings { tls: Some(files), ..Settings::at(([127, 0, 0, 1], 0).into()) };
    let error = Listener::bind(settings).await.unwrap_err().to_string();
    assert!(error.contains("/nowhere/cert.pem"), "{error}");
}
