//! Peers that are there no more, or only seem to be.

use std::time::Duration;

use roadstead_door::listener::Settings;
use roadstead_proto::api::v1::{HealthRequest, WatchSandboxRequest};
use roadstead_testkit::Proxy;
use roadstead_testkit::http2::{self, Connection};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::world::{Port, SOON, settings};

const PING_EVERY: Duration = Duration::from_millis(100);
const PING_ANSWER: Duration = Duration::from_secs(2);

#[tokio::test]
async fn a_peer_that_answers_no_ping_is_let_go_and_one_that_does_is_kept() {
    let port = Port::with(short()).await;
    let mut client = port.client().await;
    let mut watch = client.watch_sandbox(WatchSandboxRequest::default()).await.unwrap().into_inner();

    let mut silent = TcpStream::connect(port.address).await.unwrap();
    silent.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut heard = Vec::new();
    // Ends with the connection; a reset is an end too.
    let _reset = timeout(SOON, silent.read_to_end(&mut heard)).await.expect("the connection is closed");

    // It has been silent for longer.
    let quiet = timeout(PING_EVERY, watch.message()).await;
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

/// Short times, but long enough for a peer that is there, on a loaded machine too.
fn short() -> Settings {
    Settings { begin: PING_ANSWER, ping_every: PING_EVERY, ping_answer: PING_ANSWER, ..settings() }
}

/// A watch whose events have no end, on a connection with windows as large as can be.
async fn endless(port: &Port) -> Connection {
    let mut connection = Connection::open(port.address, &[(http2::INITIAL_WINDOW, i32::MAX as u32)]).await;
    connection.sends.bytes(&http2::window_update(0, i32::MAX as u32 - 65_535)).await.unwrap();
    // `follow_logs`
    connection.sends.bytes(&http2::call(1, "/openshell.v1.OpenShell/WatchSandbox", &[], &[24, 1])).await.unwrap();
    connection
}

#[tokio::test]
async fn a_peer_that_reads_nothing_is_let_go_though_every_buffer_towards_it_is_full() {
    let port = Port::with(short()).await;
    let silent = endless(&port).await;
    port.shows("door_connections", 1).await;
    // Its last word cannot be written either.
    port.shows("door_connections", 0).await;
    port.shows("door_calls_open{method=\"WatchSandbox\"}", 0).await;
    drop(silent);
}

#[tokio::test]
async fn a_peer_that_reads_nothing_is_let_go_though_it_goes_on_speaking() {
    let port = Port::with(short()).await;
    let Connection { sends, hears } = endless(&port).await;
    let speaking = tokio::spawn(sends.flood(u32::MAX, |_| http2::frame(http2::PING, 0, 0, &[0; 8])));
    port.shows("door_connections", 1).await;
    port.shows("door_connections", 0).await;
    timeout(SOON, speaking).await.expect("nobody listens to it any more").unwrap();
    drop(hears);
}

#[tokio::test]
async fn what_never_begins_is_let_go_whatever_it_begins_with() {
    let port = Port::with(short()).await;
    let begins: [&[u8]; 4] = [b"", b"PRI * HT", b"GET /healthz HTTP/1.1\r\nHost: door\r\nX-Slow: ", &[0x16, 3, 1]];
    let mut peers = Vec::new();
    for begin in begins {
        let mut peer = TcpStream::connect(port.address).await.unwrap();
        peer.write_all(begin).await.unwrap();
        peers.push(peer);
    }
    for mut peer in peers {
        let mut heard = Vec::new();
        let _reset = timeout(SOON, peer.read_to_end(&mut heard)).await.expect("the connection is closed");
    }
    port.shows("door_connections", 0).await;
}

#[tokio::test]
async fn a_cut_leaves_nothing_of_a_peer_that_said_nothing_after() {
    let port = Port::with(short()).await;
    let proxy = Proxy::before(port.address).await;
    let mut streams = Vec::new();
    for _ in 0..5 {
        let mut peer = Connection::open(proxy.address(), &[]).await;
        for stream in 0..20 {
            let open = http2::call(2 * stream + 1, "/openshell.v1.OpenShell/WatchSandbox", &[], &[]);
            peer.sends.bytes(&open).await.unwrap();
        }
        streams.push(tokio::spawn(async move { while peer.next().await.is_some() {} }));
    }
    let open = "door_calls_open{method=\"WatchSandbox\"}";
    port.shows(open, 100).await;
    let looked = 2 * PING_EVERY + PING_ANSWER;
    tokio::time::sleep(looked).await;
    assert_eq!(port.metric(open), 100, "for {looked:?} those who answer are kept");
    proxy.cut();
    port.shows(open, 0).await;
    port.shows("door_connections", 0).await;
}
