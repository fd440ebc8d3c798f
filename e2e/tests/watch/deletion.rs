use std::time::Duration;

use roadstead_e2e::Pushing;
use roadstead_e2e::api::client;
use roadstead_proto::api::v1::{SandboxPhase, WatchSandboxRequest};
use roadstead_testkit::stack::Role;
use roadstead_testkit::{Proxy, soak};
use tonic::{Code, Status};

use crate::watching::Watching;
use crate::world::{CROWD, IN_TIME, SOON, World};

/// How long before a reconnect the second one is deleted.
const JUST_BEFORE: Duration = Duration::from_millis(100);
const BOUND: Duration = IN_TIME.saturating_add(CROWD);

/// Logs these numbers as that sandbox.
async fn log(world: &World, name: &str, id: &str, numbers: std::ops::Range<u32>) {
    let token = std::fs::read_to_string(world.stack.token(&world.workspace, name).await).unwrap();
    let pushing = Pushing::open(&world.stack.bridge(1), &token, id);
    pushing.batch(numbers).await;
    pushing.end().await.unwrap();
}

fn with_lines(request: WatchSandboxRequest) -> WatchSandboxRequest {
    WatchSandboxRequest { follow_logs: true, ..request }
}

fn after(cursor: &str, request: WatchSandboxRequest) -> WatchSandboxRequest {
    WatchSandboxRequest { resume_after_cursor: cursor.to_owned(), ..request }
}

fn refused(opened: Result<Watching, Status>) -> Code {
    opened.map_or_else(|status| status.code(), |open| panic!("it is open: {open:?}"))
}

/// A client that is cut off while its sandbox is deleted and another one takes the name.
async fn a_namesake_takes_over(world: &World) {
    let edge = world.stack.node(Role::Edge, 1);
    let proxy = Proxy::before(edge.url().trim_start_matches("http://").parse().unwrap()).await;
    let through = client(&format!("http://{}", proxy.address()));
    let first = world.sandbox("n").await;
    log(world, "n", &first, 0..3).await;
    let cut_off = [
        Watching::open(through.clone(), world.status("n")).await.unwrap(),
        Watching::open(through.clone(), with_lines(world.status("n"))).await.unwrap(),
        Watching::open(through, WatchSandboxRequest { follow_status: false, ..with_lines(world.status("n")) })
            .await
            .unwrap(),
    ];
    for stream in &cut_off {
        stream.until_version(SOON, 1).await;
    }
    let cursor = cut_off[1].until(SOON, "lines", |seen| seen.lines.len() == 3).await.lines[1].1.clone();
    cut_off[2].until(SOON, "lines", |seen| seen.lines.len() == 3).await;

    proxy.cut();
    world.delete(2, "n").await;
    let second = world.sandbox("n").await;
    assert_ne!(first, second);
    log(world, "n", &second, 70..71).await;

    // Who comes back by name sees that it is another one, and nothing of the first.
    for edge in [1, 2] {
        let by_name = world.watch(edge, with_lines(world.status("n"))).await.unwrap();
        let seen = by_name.until(SOON, "its line", |seen| !seen.lines.is_empty()).await;
        assert_eq!((seen.states[0].id.as_str(), seen.lines[0].0), (second.as_str(), 70));
        for request in [with_lines(world.status("n")), world.status("n")] {
            let with_cursor = world.watch(edge, after(&cursor, request)).await;
            assert_eq!(refused(with_cursor), Code::InvalidArgument, "it is the first one's");
        }
        assert_eq!(refused(world.watch(edge, world.status(&first)).await), Code::NotFound, "it is not a name");
    }

    // Streams of the first one end with it, whatever becomes of the second.
    let mut session = world.stack.session().await;
    session.run(&world.by_hand("n", Some(SandboxPhase::Ready))).await;
    proxy.heal();
    for stream in &cut_off {
        let seen = stream.until_end(SOON).await;
        assert!(seen.states.iter().all(|state| state.id == first), "{seen:?}");
    }

    // Also gone when the client comes back: at once, and a while before.
    for pause in [Duration::ZERO, JUST_BEFORE] {
        for edge in [1, 2] {
            world.delete(3 - edge, "n").await;
            tokio::time::sleep(pause).await;
            assert_eq!(refused(world.watch(edge, world.status("n")).await), Code::NotFound);
            assert_eq!(refused(world.watch(edge, after(&cursor, world.status("n"))).await), Code::NotFound);
            world.sandbox("n").await;
        }
    }
}

/// Every stream of a sandbox that is deleted ends, whatever it follows.
async fn none_outlives_its_sandbox(world: &World) {
    world.sandbox("d").await;
    let mut streams = Vec::new();
    for edge in [1, 2] {
        for what in 1..16_u8 {
            let request = WatchSandboxRequest {
                follow_status: what & 1 != 0,
                follow_logs: what & 2 != 0,
                follow_events: what & 4 != 0,
                stop_on_terminal: what & 8 != 0,
                ..world.status("d")
            };
            let stream = world.watch(edge, request).await.unwrap();
            assert!(stream.until_version(SOON, 1).await.ended.is_none());
            streams.push(stream);
        }
        let nothing = WatchSandboxRequest { follow_status: false, ..world.status("d") };
        let nothing = world.watch(edge, nothing).await.unwrap();
        assert_eq!(nothing.until_end(SOON).await.states.len(), 1, "a snapshot, and nothing else was wanted");
    }
    world.delete(1, "d").await;
    for stream in &streams {
        stream.until_end(BOUND).await;
    }
}

/// A stream that opens while its sandbox is deleted shows a state and ends, or is refused.
async fn opens_meanwhile(world: &World) {
    for round in 0..soak::count(10) {
        let name = format!("r{round}");
        world.sandbox(&name).await;
        let opening = async |edge: usize| match world.watch(edge, world.status(&name)).await {
            Ok(stream) => assert!(!stream.until_end(SOON).await.states.is_empty()),
            Err(status) => assert_eq!(status.code(), Code::NotFound, "{status}"),
        };
        tokio::join!(world.delete(1, &name), opening(1), opening(2), opening(1), opening(2));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_was_away_when_a_sandbox_went_learns_it_and_its_namesake_is_never_taken_for_it() {
    let world = World::start().await;
    a_namesake_takes_over(&world).await;
    none_outlives_its_sandbox(&world).await;
    opens_meanwhile(&world).await;
}
