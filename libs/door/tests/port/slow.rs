//! Peers that do not take, or hardly, what they asked for.

use std::time::Duration;

use roadstead_door::Limits;
use roadstead_proto::api::v1::{HealthRequest, ListWorkspacesRequest};
use roadstead_testkit::http2::{self, Connection};
use tokio::time::timeout;

use crate::world::{PAGE, Port, SOON, settings};

const CANCEL: u32 = 8;
const WATCH: &str = "/openshell.v1.OpenShell/WatchSandbox";
const LIST: &str = "/openshell.v1.OpenShell/ListWorkspaces";

#[tokio::test(flavor = "multi_thread")]
async fn watches_without_a_window_hold_one_event_each_and_end_after_their_time() {
    const WATCHES: u32 = 1000;
    let piece_time = Duration::from_secs(1);
    let port = Port::limited(settings(), Limits { piece_time, ..Limits::default() }).await;
    let Connection { mut sends, mut hears } = Connection::open(port.address, &[(http2::INITIAL_WINDOW, 0)]).await;
    for number in 0..WATCHES {
        // `follow_logs`: events without end.
        sends.bytes(&http2::call(2 * number + 1, WATCH, &[], &[24, 1])).await.unwrap();
    }
    for _ in 0..WATCHES {
        let end = timeout(SOON, hears.until(http2::RESET)).await.unwrap().unwrap();
        assert_eq!(end.error(), Some(CANCEL));
    }
    assert!(port.events() <= 2 * u64::from(WATCHES), "{} events were asked for", port.events());
    port.shows("door_calls_open{method=\"WatchSandbox\"}", 0).await;
    port.shows("door_responses_given_up_total", WATCHES.into()).await;
    // The connection is as good as before.
    sends.bytes(&http2::call(2 * WATCHES + 1, "/openshell.v1.OpenShell/Health", &[], &[])).await.unwrap();
    assert!(timeout(SOON, hears.until(http2::HEADERS)).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_nobody_takes_give_way_to_those_that_are_taken() {
    const ROOM: usize = 4;
    let limits = Limits { unread: ROOM * (PAGE + 8 * 1024), ..Limits::default() };
    let port = Port::limited(settings(), limits).await;
    let Connection { mut sends, mut hears } = Connection::open(port.address, &[(http2::INITIAL_WINDOW, 1)]).await;
    for number in 0..3 * ROOM as u32 {
        sends.bytes(&http2::call(2 * number + 1, LIST, &[], &[])).await.unwrap();
    }
    for number in 0..2 * ROOM as u32 {
        let end = timeout(SOON, hears.until(http2::RESET)).await.unwrap().unwrap();
        assert_eq!(end.error(), Some(CANCEL), "number {number}");
    }
    let mut honest = port.client().await;
    for _ in 0..3 * ROOM {
        // Zeros are no list, but they have all come before that is found out.
        let page = honest.list_workspaces(ListWorkspacesRequest::default()).await.unwrap_err();
        assert!(page.message().contains("decode") || page.message().contains("tag"), "{page:?}");
    }
    honest.health(HealthRequest {}).await.unwrap();
    port.shows("door_responses_given_up_total", 2 * ROOM as u64 + 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_must_be_taken_whole_in_its_time_however_busily_its_client_nibbles() {
    let answer_time = Duration::from_secs(1);
    let port = Port::limited(settings(), Limits { answer_time, ..Limits::default() }).await;
    let Connection { mut sends, mut hears } = Connection::open(port.address, &[(http2::INITIAL_WINDOW, 1)]).await;
    sends.bytes(&http2::call(1, LIST, &[], &[])).await.unwrap();
    let nibbling = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            if sends.bytes(&http2::window_update(1, 1000)).await.is_err() {
                break;
            }
        }
    });
    let end = timeout(SOON, hears.until(http2::RESET)).await.unwrap().unwrap();
    assert_eq!(end.error(), Some(CANCEL));
    port.shows("door_responses_given_up_total", 1).await;
    nibbling.abort();
}
