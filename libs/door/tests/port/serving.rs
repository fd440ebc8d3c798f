//! What a port serves.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::uri::PathAndQuery;
use prost::Message as _;
use roadstead_door::Limits;
use roadstead_proto::api::v1::open_shell_client::OpenShellClient;
use roadstead_proto::api::v1::{
    CreateSandboxRequest, GetSandboxRequest, GetWorkspaceRequest, HealthRequest, HealthResponse, SandboxResponse,
    WatchSandboxRequest,
};
use roadstead_proto::method::Method;
use roadstead_testkit::Proxy;
use roadstead_testkit::proxy::Direction;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

use crate::world::{Port, SOON, get, settings};

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
    // None is left for a unary call.
    let port = Port::limited(settings(), Limits { calls: 0, ..Limits::default() }).await;
    // Answers come late, so that the rest of a request is on its way when it is refused.
    let proxy = Proxy::before(port.address).await;
    proxy.slow(Direction::ToClient, Duration::from_millis(20));
    let channel = Channel::from_shared(format!("http://{}", proxy.address())).unwrap().connect().await.unwrap();
    let mut client = OpenShellClient::new(channel.clone());
    let mut events = client.watch_sandbox(WatchSandboxRequest::default()).await.unwrap().into_inner();
    let (wrong, right) = ("Bearer wrong", None);
    for (method, token, expected) in [
        (Method::GetSandbox, Some(wrong), Code::Unauthenticated),
        (Method::GetSandbox, right, Code::ResourceExhausted),
        (Method::WatchSandbox, Some(wrong), Code::Unauthenticated),
    ]
    .repeat(20)
    {
        let refused = (0..100).map(|_| {
            let mut grpc = Grpc::new(channel.clone());
            async move {
                let late = stream::once(async {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    GetSandboxRequest::default()
                });
                let mut request = Request::new(late);
                if let Some(token) = token {
                    request.metadata_mut().insert("authorization", token.parse().unwrap());
                }
                let codec = ProstCodec::<GetSandboxRequest, SandboxResponse>::default();
                grpc.ready().await.unwrap();
                let path = PathAndQuery::from_static(method.full_path());
                grpc.client_streaming(request, path, codec).await.unwrap_err().code()
            }
        });
        let codes = futures_util::future::join_all(refused).await;
        assert!(codes.iter().all(|code| *code == expected), "{method}: {codes:?}");
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
