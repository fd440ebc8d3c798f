//! Peers that break the rules, or keep them and mean harm. Each is sent away, and clients beside it feel nothing.

use std::time::Duration;

use roadstead_door::listener::{ERRORS, Settings};
use roadstead_proto::api::v1::HealthRequest;
use roadstead_testkit::http2::{self, Connection};
use tokio::time::{Instant, timeout};

use crate::world::{Port, SOON, settings};

const WATCH: &str = "/openshell.v1.OpenShell/WatchSandbox";
const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const ENHANCE_YOUR_CALM: u32 = 11;
/// Without end, as far as a test goes.
const MANY: u32 = 200_000;
/// What a call of somebody else takes at most meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);

/// Floods a port with frames, one or more for each number, and says with which error it is sent away.
async fn flood(first: Vec<u8>, frames: impl Fn(u32) -> Vec<u8> + Send + 'static) -> Option<u32> {
    let port = Port::open(SOON).await;
    let mut honest = port.client().await;
    let Connection { mut sends, mut hears } = Connection::open(port.address, &[]).await;
    sends.bytes(&first).await.unwrap();
    let flooding = tokio::spawn(sends.flood(MANY, frames));
    let goodbye = tokio::spawn(async move { hears.until(http2::GO_AWAY).await });
    while !goodbye.is_finished() {
        let began = Instant::now();
        honest.health(HealthRequest {}).await.unwrap();
        assert!(began.elapsed() < PATIENCE, "an honest call took {:?}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    timeout(SOON, flooding).await.expect("nobody listens to it any more").unwrap();
    honest.health(HealthRequest {}).await.unwrap();
    port.shows("door_calls_open{method=\"WatchSandbox\"}", 0).await;
    goodbye.await.unwrap().and_then(|frame| frame.error())
}

/// The streams of a client, one after the other.
fn stream(number: u32) -> u32 {
    2 * number + 1
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_opens_and_resets_streams_faster_than_they_are_looked_at_is_sent_away() {
    let ended = flood(Vec::new(), |number| {
        // A few in a write, as fast as they go.
        let pairs = (0..50).flat_map(|each| {
            let stream = stream(50 * number + each);
            let open = http2::frame(http2::HEADERS, http2::END_HEADERS, stream, &http2::head(WATCH, &[]));
            [open, http2::frame(http2::RESET, 0, stream, &8_u32.to_be_bytes())].concat()
        });
        pairs.collect()
    });
    assert_eq!(ended.await, Some(ENHANCE_YOUR_CALM));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_grows_by_nothing_or_beyond_its_bound_ends_the_connection() {
    assert_eq!(flood(http2::window_update(0, 0), |_| Vec::new()).await, Some(PROTOCOL_ERROR));
    assert_eq!(flood(http2::window_update(0, i32::MAX as u32), |_| Vec::new()).await, Some(FLOW_CONTROL_ERROR));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_errs_on_one_stream_after_the_other_is_sent_away() {
    let ended = flood(Vec::new(), |number| {
        let open = http2::frame(http2::HEADERS, http2::END_HEADERS, stream(number), &http2::head(WATCH, &[]));
        [open, http2::window_update(stream(number), i32::MAX as u32)].concat()
    });
    assert_eq!(ended.await, Some(ENHANCE_YOUR_CALM), "after {ERRORS} of them");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_without_end_ends_the_connection() {
    let begin = || http2::frame(http2::HEADERS, 0, 1, &http2::head(WATCH, &[]));
    let small = |_| http2::frame(http2::CONTINUATION, 0, 1, &http2::header("x-more", "of it"));
    assert_eq!(flood(begin(), small).await, Some(ENHANCE_YOUR_CALM));
    let empty = |_| http2::frame(http2::CONTINUATION, 0, 1, &[]);
    assert_eq!(flood(begin(), empty).await, Some(ENHANCE_YOUR_CALM));
    let large = |_| http2::frame(http2::CONTINUATION, 0, 1, &http2::header("x-more", &"x".repeat(16_000)));
    assert!(flood(begin(), large).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_crumbs_ends_the_connection() {
    let begin = || http2::frame(http2::HEADERS, http2::END_HEADERS, 1, &http2::head(WATCH, &[]));
    assert_eq!(flood(begin(), |_| http2::frame(http2::DATA, 0, 1, &[])).await, Some(ENHANCE_YOUR_CALM));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_asks_without_end_and_hears_no_answer_is_let_go() {
    for question in [http2::frame(http2::PING, 0, 0, &[7; 8]), http2::frame(http2::SETTINGS, 0, 0, &[])] {
        let (ping_every, ping_answer) = (Duration::from_millis(300), Duration::from_millis(300));
        let port = Port::with(Settings { ping_every, ping_answer, ..settings() }).await;
        let mut honest = port.client().await;
        let Connection { sends, hears } = Connection::open(port.address, &[]).await;
        let many = question.repeat(1000);
        let flooding = tokio::spawn(sends.flood(u32::MAX, move |_| many.clone()));
        port.shows("door_connections", 2).await;
        honest.health(HealthRequest {}).await.unwrap();
        port.shows("door_connections", 1).await;
        timeout(SOON, flooding).await.expect("nobody listens to it any more").unwrap();
        honest.health(HealthRequest {}).await.unwrap();
        drop(hears);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_beyond_the_limit_of_a_connection_are_refused_and_those_within_it_stay() {
    let port = Port::with(Settings { streams: 10, ..settings() }).await;
    let Connection { mut sends, mut hears } = Connection::open(port.address, &[]).await;
    for number in 0..11 {
        sends.bytes(&http2::call(stream(number), WATCH, &[], &[])).await.unwrap();
    }
    let refused = timeout(SOON, hears.until(http2::RESET)).await.unwrap().unwrap();
    assert_eq!((refused.stream, refused.error()), (stream(10), Some(7)));
    port.shows("door_calls_open{method=\"WatchSandbox\"}", 10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_anybody_may_open_do_not_shut_out_the_checks_of_a_balancer() {
    use roadstead_door::Limits;
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;

    let port = Port::limited(settings(), Limits { open_streams: 5, ..Limits::default() }).await;
    let Connection { mut sends, hears } = Connection::open(port.address, &[]).await;
    for number in 0..10 {
        let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
        let head = http2::frame(http2::HEADERS, http2::END_HEADERS, stream(number), &http2::head(path, &[]));
        sends.bytes(&head).await.unwrap();
    }
    port.shows("door_calls_open{method=\"other\"}", 5).await;
    port.shows("door_calls_total{method=\"other\",code=\"RESOURCE_EXHAUSTED\"}", 5).await;
    let channel = tonic::transport::Channel::from_shared(format!("http://{}", port.address)).unwrap();
    let mut health = HealthClient::new(channel.connect().await.unwrap());
    health.check(HealthCheckRequest::default()).await.unwrap();
    let mut watch = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert!(watch.message().await.unwrap().is_some());
    drop(hears);
}
