//! How a port closes.

use std::time::Duration;

use roadstead_proto::api::v1::{
    GetSandboxRequest, HealthRequest, ListSandboxesRequest, SandboxResponse, WatchSandboxRequest,
};
use roadstead_testkit::http2::{self, Connection};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tonic::{Code, Response};
use tonic_types::StatusExt as _;

use crate::world::{Port, SOON};

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
async fn streams_end_one_after_the_other_each_told_when_to_come_back_and_at_different_times() {
    const STREAMS: usize = 40;
    let port = Port::open(SOON).await;
    let mut client = port.client().await;
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        streams.push(client.watch_sandbox(WatchSandboxRequest::default()).await.unwrap().into_inner());
    }
    let began = Instant::now();
    port.drain();
    let ends = streams.into_iter().map(|mut stream| async move {
        let status = stream.message().await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        (began.elapsed(), status.get_details_retry_info().and_then(|info| info.retry_delay).unwrap())
    });
    let (mut ends, mut delays): (Vec<_>, Vec<_>) = futures_util::future::join_all(ends).await.into_iter().unzip();
    for times in [&mut ends, &mut delays] {
        times.sort();
    }
    let longest = roadstead_door::drain::SPREAD + Duration::from_secs(1);
    assert!(ends[STREAMS - 1] <= longest, "{ends:?}");
    // Of forty at random, hardly all are in one half.
    assert!(ends[STREAMS - 1] - ends[0] >= roadstead_door::drain::SPREAD / 2, "they end in one wave: {ends:?}");
    assert!(delays[STREAMS - 1] - delays[0] >= Duration::from_millis(500), "they come back in one wave: {delays:?}");
    port.stop().await;
}

#[tokio::test]
async fn a_peer_that_ignores_the_end_of_its_connection_is_cut_with_it() {
    let port = Port::open(Duration::from_millis(500)).await;
    let mut deaf = Connection::open(port.address, &[]).await;
    deaf.sends.bytes(&http2::call(1, "/openshell.v1.OpenShell/WatchSandbox", &[], &[])).await.unwrap();
    assert!(deaf.hears.until(http2::HEADERS).await.is_some());
    port.drain();
    assert_eq!(timeout(SOON, deaf.hears.until(http2::GO_AWAY)).await.unwrap().unwrap().error(), Some(0));
    // Goes on as if nothing was, and never answers the ping that came along.
    let mut stream = 1;
    let sending = tokio::spawn(async move {
        while deaf.sends.bytes(&http2::call(stream, "/openshell.v1.OpenShell/ListSandboxes", &[], &[])).await.is_ok() {
            stream += 2;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    timeout(SOON, deaf.hears.end()).await.expect("the connection is cut");
    assert!(port.stop().await < Duration::from_secs(2));
    timeout(SOON, sending).await.unwrap().unwrap();
}
