//! One message to a bridge is lost, and nothing changes after it: reading again finds what it said.

use std::time::{Duration, Instant};

use roadstead_e2e::api::{request_id, scope};
use roadstead_e2e::policy::to_host;
use roadstead_proto::api::v1::{SandboxPhase, StopSandboxRequest};
use roadstead_testkit::proxy::Direction;
use roadstead_testkit::stack::{Plan, Role};

use crate::world::{CROWD, SOON, World};

/// How often the bridge reads again here, and the longest that may take: 110 percent.
const EVERY: &str = "--reread-seconds=3";
const LONGEST: Duration = Duration::from_millis(3300);

/// How often reading again has found something.
const MISSED: &str = r#"roadstead_session_missed_entries_total{role="supervisor-bridge"}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_of_which_the_bridge_never_heard_arrives_within_the_interval_of_reading_again() {
    let world = World::start(Plan::single().flag(Role::SupervisorBridge, EVERY)).await;
    let supervised = world.ready_sandbox("deaf", &[]).await;
    let bridge = world.stack.node(Role::SupervisorBridge, 1);
    let found = bridge.metric(MISSED).await;

    bridge.nats.drop_messages(Direction::ToClient, "roadstead.feed.snapshots.", 1);
    let (changed, committed) = world.set_policy("deaf", to_host("lost.example", None)).await;
    bridge.nats.dropped(1).await;
    let frame = supervised.policy(LONGEST + CROWD, &changed.policy_hash).await;
    assert!(frame.at.saturating_duration_since(committed) <= LONGEST + CROWD);
    assert_eq!(bridge.metric(MISSED).await, found + 1.0);

    // What comes after is heard of at once.
    let (next, _) = world.set_policy("deaf", to_host("heard.example", None)).await;
    supervised.policy(SOON, &next.policy_hash).await;
    assert_eq!(bridge.metric(MISSED).await, found + 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_of_which_the_bridge_never_heard_ends_the_session_within_the_interval_of_reading_again() {
    let world = World::start(Plan::single().flag(Role::SupervisorBridge, EVERY)).await;
    let supervised = world.ready_sandbox("deaf", &[]).await;
    let bridge = world.stack.node(Role::SupervisorBridge, 1);
    bridge.nats.drop_messages(Direction::ToClient, "roadstead.feed.sandboxes.", 1);
    let request = StopSandboxRequest {
        workspace_scope: scope(&world.workspace),
        name: "deaf".to_owned(),
        request_id: request_id(),
    };
    world.api().stop_sandbox(request).await.unwrap();
    let stopped = Instant::now();
    bridge.nats.dropped(1).await;
    world.until_phase("deaf", SandboxPhase::Stopped).await;
    assert!(stopped.elapsed() <= LONGEST + CROWD, "it took {:?}", stopped.elapsed());
    assert_eq!(supervised.supervisor.status().borrow().connection, None);
}
