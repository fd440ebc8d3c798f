//! `WatchSandbox` from outside.

use std::time::Duration;

use roadstead_proto::api::datamodel::WorkspaceSelector;
use roadstead_proto::api::datamodel::workspace_selector::Selection;
use roadstead_proto::api::v1::sandbox_stream_event::Payload;
use roadstead_proto::api::v1::{SandboxPhase, SandboxStreamEvent, WatchSandboxRequest};
use roadstead_testkit::eventually;
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};
use uuid::Uuid;

use crate::client::Client;
use crate::world::{ALICE, LONG, ROOT, World};

const ID: Uuid = Uuid::from_u128(0x51);
const NAME: &str = "s";

fn request() -> WatchSandboxRequest {
    WatchSandboxRequest {
        sandbox: NAME.to_owned(),
        workspace_scope: Some(WorkspaceSelector { selection: Some(Selection::Workspace("w".to_owned())) }),
        follow_status: true,
        ..Default::default()
    }
}

async fn open(client: &Client, request: WatchSandboxRequest) -> Result<Streaming<SandboxStreamEvent>, Status> {
    timeout(LONG, client.api().watch_sandbox(request)).await.unwrap().map(tonic::Response::into_inner)
}

/// The next event: version and phase.
async fn next(stream: &mut Streaming<SandboxStreamEvent>) -> (u64, SandboxPhase) {
    let event = timeout(LONG, stream.message()).await.unwrap().unwrap().expect("the stream goes on");
    let Some(Payload::Sandbox(sandbox)) = event.payload else { panic!("a state: {event:?}") };
    (sandbox.metadata.unwrap().resource_version, sandbox.status.unwrap().phase())
}

/// How the stream ends.
async fn end(stream: &mut Streaming<SandboxStreamEvent>) -> Result<(), Status> {
    match timeout(LONG, stream.message()).await.unwrap()? {
        Some(event) => panic!("the stream ends: {event:?}"),
        None => Ok(()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_begins_with_a_snapshot_follows_and_ends_with_the_sandbox() {
    let world = World::new().await;
    world.watch.put(ID, NAME, 3, SandboxPhase::Provisioning).await;
    let client = world.client(ROOT).await;
    let mut stream = open(&client, request()).await.unwrap();
    assert_eq!(next(&mut stream).await, (3, SandboxPhase::Provisioning));
    world.watch.put(ID, NAME, 4, SandboxPhase::Ready).await;
    assert_eq!(next(&mut stream).await, (4, SandboxPhase::Ready));
    world.watch.put(ID, NAME, 5, SandboxPhase::Deleting).await;
    assert_eq!(next(&mut stream).await, (5, SandboxPhase::Deleting));
    world.watch.remove(ID).await;
    end(&mut stream).await.unwrap();
    assert_eq!(open(&client, request()).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_entry_of_the_projection_is_never_shown() {
    let world = World::new().await;
    world.watch.put(ID, NAME, 3, SandboxPhase::Provisioning).await;
    let mut stream = open(&world.client(ROOT).await, request()).await.unwrap();
    assert_eq!(next(&mut stream).await.0, 3);
    let newest = world.watch.change(ID, NAME, 9, SandboxPhase::Ready);
    for version in [2, 3, 7, 6, 7, 5] {
        let mut entry = newest.clone();
        entry.version = version;
        entry.sandbox.as_mut().unwrap().metadata.as_mut().unwrap().resource_version = version;
        world.watch.project(ID, &entry).await;
    }
    world.watch.project(ID, &newest).await;
    let mut last = 3;
    while last != 9 {
        let (version, _) = next(&mut stream).await;
        assert!(version > last, "{version} after {last}");
        last = version;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_stops_on_terminal_ends_at_once_or_when_it_comes() {
    let world = World::new().await;
    let client = world.client(ROOT).await;
    let stops = WatchSandboxRequest { stop_on_terminal: true, ..request() };

    world.watch.put(ID, NAME, 1, SandboxPhase::Provisioning).await;
    let mut stream = open(&client, stops.clone()).await.unwrap();
    assert_eq!(next(&mut stream).await.0, 1);
    world.watch.put(ID, NAME, 2, SandboxPhase::Error).await;
    assert_eq!(next(&mut stream).await, (2, SandboxPhase::Error));
    end(&mut stream).await.unwrap();

    let mut stream = open(&client, stops).await.unwrap();
    assert_eq!(next(&mut stream).await, (2, SandboxPhase::Error));
    end(&mut stream).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_no_feed_message_told_is_found_after_a_silence() {
    let world = World::new().await;
    world.watch.put(ID, NAME, 1, SandboxPhase::Provisioning).await;
    let mut stream = open(&world.client(ROOT).await, request()).await.unwrap();
    assert_eq!(next(&mut stream).await.0, 1);
    world.watch.hush();
    world.watch.change(ID, NAME, 2, SandboxPhase::Ready);
    assert_eq!(next(&mut stream).await, (2, SandboxPhase::Ready));
    world.watch.beat();
    world.watch.put(ID, NAME, 3, SandboxPhase::Stopping).await;
    assert_eq!(next(&mut stream).await.0, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_broker_loses_no_change() {
    let mut world = World::new().await;
    world.watch.put(ID, NAME, 1, SandboxPhase::Provisioning).await;
    let mut stream = open(&world.client(ROOT).await, request()).await.unwrap();
    assert_eq!(next(&mut stream).await.0, 1);
    world.broker.kill().await;
    world.watch.change(ID, NAME, 2, SandboxPhase::Ready);
    world.broker.resume().await;
    assert_eq!(next(&mut stream).await, (2, SandboxPhase::Ready));
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_watchers_ask_nothing() {
    let world = World::new().await;
    world.watch.put(ID, NAME, 1, SandboxPhase::Ready).await;
    let client = world.client(ROOT).await;
    let mut streams = Vec::new();
    for _ in 0..50 {
        let mut stream = open(&client, request()).await.unwrap();
        assert_eq!(next(&mut stream).await.0, 1);
        streams.push(stream);
    }
    let asked = world.watch.entries_read();
    for version in 2..10 {
        world.watch.put(ID, NAME, version, SandboxPhase::Ready).await;
    }
    for stream in &mut streams {
        while next(stream).await.0 != 9 {}
    }
    assert_eq!(world.watch.entries_read(), asked, "the feed told it all");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_no_longer_a_member_watches_no_longer() {
    let world = World::new().await;
    let client = world.client(ALICE).await;
    world.watch.put(ID, NAME, 1, SandboxPhase::Ready).await;
    assert_eq!(open(&client, request()).await.unwrap_err().code(), Code::PermissionDenied);

    world.watch.put_members(&["alice", "bob"]).await;
    let mut stream = open(&client, request()).await.unwrap();
    let mut roots = open(&world.client(ROOT).await, request()).await.unwrap();
    assert_eq!((next(&mut stream).await.0, next(&mut roots).await.0), (1, 1));
    world.watch.put_members(&["alice"]).await;
    world.watch.put(ID, NAME, 2, SandboxPhase::Ready).await;
    assert_eq!(next(&mut stream).await.0, 2, "still a member");
    world.watch.put_members(&["bob"]).await;
    assert_eq!(end(&mut stream).await.unwrap_err().code(), Code::PermissionDenied);
    world.watch.put(ID, NAME, 3, SandboxPhase::Ready).await;
    while next(&mut roots).await.0 != 3 {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_no_feed_message_told_is_found_after_a_silence() {
    let world = World::new().await;
    world.watch.put(ID, NAME, 1, SandboxPhase::Ready).await;
    world.watch.put_members(&["alice"]).await;
    let mut stream = open(&world.client(ALICE).await, request()).await.unwrap();
    assert_eq!(next(&mut stream).await.0, 1);
    world.watch.change_members(&[]);
    world.watch.hush();
    assert_eq!(end(&mut stream).await.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_of_the_edge_ends_streams_with_a_hint_to_come_back() {
    let world = World::new().await;
    world.watch.put(ID, NAME, 1, SandboxPhase::Ready).await;
    let mut stream = open(&world.client(ROOT).await, request()).await.unwrap();
    assert_eq!(next(&mut stream).await.0, 1);
    world.edge.shutdown.request();
    assert_eq!(end(&mut stream).await.unwrap_err().code(), Code::Unavailable);
    timeout(LONG, world.edge.ended).await.unwrap().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_beyond_the_limit_are_refused_and_places_come_back() {
    let world = World::with(&["--watches=1"]).await;
    world.watch.put(ID, NAME, 1, SandboxPhase::Ready).await;
    let client = world.client(ROOT).await;
    let first = open(&client, request()).await.unwrap();
    assert_eq!(open(&client, request()).await.unwrap_err().code(), Code::ResourceExhausted);
    drop(first);
    eventually(LONG, "the place is free again", || async {
        let opened = tokio::time::timeout(Duration::from_secs(5), open(&client, request())).await;
        matches!(opened, Ok(Ok(_)))
    })
    .await;
}
