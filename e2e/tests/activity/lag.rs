use std::time::Duration;

use roadstead_e2e::api::scope;
use roadstead_e2e::{Toggle, toggle};
use roadstead_proto::api::v1::{GetSandboxLogsRequest, WatchSandboxRequest};
use roadstead_testkit::soak;

use crate::flood::flood;
use crate::world::{Shown, World, next};

/// What a reader takes its time for.
const PACE: Duration = Duration::from_millis(200);
const FLOOD: Duration = Duration::from_secs(4);
/// Time of a batch of the flood: half of what a sandbox may log, so that also what comes in bursts is taken.
const EVERY: Duration = Duration::from_millis(40);

/// Changes the sandbox, five times a second, and returns its last version.
async fn changes(world: &World, count: u32) -> u64 {
    let mut toggle = Toggle::of(&world.stack.edge(2), &world.workspace, "s");
    let mut version = 0;
    for _ in 0..count {
        version = toggle.next().await;
        tokio::time::sleep(PACE).await;
    }
    version
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_far_too_slow_is_told_what_it_lost_and_loses_no_state_and_no_stream() {
    let world = World::start().await;
    let (sandbox_id, quiet_id) = (world.sandbox("s").await, world.sandbox("quiet").await);
    toggle::prepare(&world.stack.edge(1), &world.workspace).await;
    world.log(2, "quiet", &quiet_id, 0..1).await;

    let request = WatchSandboxRequest { follow_status: true, follow_events: true, ..world.follow("s") };
    let mut slow = world.narrow_edge(1).watch_sandbox(request).await.unwrap().into_inner();
    let flooding = flood(&world, "s", &sandbox_id, EVERY, soak::period(FLOOD));
    let changing = changes(&world, soak::count(10));
    let mut shown = Vec::new();
    let reading = async {
        loop {
            shown.push(next(&mut slow).await);
            tokio::time::sleep(PACE).await;
        }
    };
    let (lines, version) = tokio::select! {
        ended = async { tokio::join!(flooding, changing) } => ended,
        () = reading => unreachable!(),
    };

    // Now it takes what comes: up to a line that is newer than all, and the newest state.
    world.log(2, "s", &sandbox_id, lines..lines + 1).await;
    let is_last = |one: &Shown| matches!(one, Shown::Line { number, .. } if *number == lines);
    while !(shown.iter().any(is_last) && shown.contains(&Shown::State(version))) {
        shown.push(next(&mut slow).await);
    }

    // A bridge says how many lines it dropped, once a second: as many may be missing elsewhere than at a warning.
    let (mut expected, mut state, mut warnings, mut excused) = (0, 0, 0, false);
    let (mut unsaid, mut dropped) = (0, 0);
    for one in &shown {
        match one {
            Shown::Line { number, cursor } => {
                assert!(*number >= expected, "{number} after {expected}");
                unsaid += if excused { 0 } else { number - expected };
                assert!(!cursor.is_empty());
                (expected, excused) = (number + 1, false);
            }
            Shown::State(version) => {
                assert!(*version > state, "{version} after {state}");
                state = *version;
            }
            Shown::Warning(message) => {
                assert!(message.contains("fell behind"), "{message}");
                assert!(message.contains(" after ") && message.contains(" before "), "{message}");
                (warnings, excused) = (warnings + 1, true);
            }
            Shown::Event { cursor, .. } => assert!(!cursor.is_empty()),
            Shown::Word(message) => {
                let (lines, _) = message.split_once(" lines were dropped").expect(message);
                dropped += lines.parse::<u32>().unwrap();
            }
        }
    }
    assert!(unsaid <= dropped, "{unsaid} lines are missing without a word, {dropped} with one");
    assert!(warnings > 0, "it cannot have seen all {lines} lines");

    // The stream goes on, and a sandbox that was quiet meanwhile has lost nothing.
    world.log(1, "s", &sandbox_id, lines + 1..lines + 2).await;
    assert!(matches!(next(&mut slow).await, Shown::Line { number, .. } if number == lines + 1));
    let request = GetSandboxLogsRequest {
        workspace_scope: scope(&world.workspace),
        sandbox: "quiet".to_owned(),
        ..Default::default()
    };
    let quiet = world.edge(2).get_sandbox_logs(request).await.unwrap().into_inner();
    assert_eq!((quiet.logs.len(), quiet.buffer_total), (1, 1));
}
