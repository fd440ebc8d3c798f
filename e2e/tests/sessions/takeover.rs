//! Who may take a sandbox over from whom, and how fast.

use std::time::Duration;

use roadstead_proto::api::v1::supervisor_message::Payload;
use roadstead_proto::api::v1::{ConfigApplyOutcome, ConfigUpdateResult, SandboxPhase};
use roadstead_testkit::stack::{Plan, Role};
use tokio::time::{Instant, timeout};
use tonic::Code;
use uuid::Uuid;

use crate::world::{CROWD, SOON, World};
use roadstead_e2e::Held;

/// What a takeover with proof may take.
const AT_ONCE: Duration = Duration::from_secs(1);

async fn owner(world: &World, sandbox: &str) -> String {
    let mut session = world.stack.session().await;
    session.value(&format!("select coalesce(session_id::text, '') from roadstead.sandbox where id = '{sandbox}'")).await
}

/// One of each role, but two bridges.
fn two_bridges() -> Plan {
    Plan::single().replicas(Role::SupervisorBridge, 2)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_connection_of_the_same_instance_takes_over_at_once_and_nobody_else_does_while_the_owner_lives() {
    only_a_later_connection_takes_over(two_bridges()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_needs_the_same_proof_and_takes_no_longer_with_three_brokers() {
    only_a_later_connection_takes_over(two_bridges().brokers(3)).await;
}

async fn only_a_later_connection_takes_over(plan: Plan) {
    let world = World::start(plan).await;
    let sandbox = world.sandbox("owned", &[]).await;
    let token = &world.token("owned").await;
    let (first, second) = (world.stack.bridge(1), world.stack.bridge(2));
    let (instance, stranger) = (Uuid::new_v4(), Uuid::new_v4());

    let mut old = Held::open(&first, token, &sandbox, instance, 5).await.unwrap();
    assert_eq!(owner(&world, &sandbox).await, old.session_id);
    for (bridge, who, epoch) in [
        (&second, stranger, 1),
        (&second, stranger, 99),
        (&first, stranger, 6),
        (&second, instance, 5),
        (&second, instance, 4),
        (&first, instance, 5),
    ] {
        let refused = Held::open(bridge, token, &sandbox, who, epoch).await.expect_err("it is refused");
        assert_eq!(refused.code(), Code::Aborted, "{refused}");
        assert_eq!(owner(&world, &sandbox).await, old.session_id);
    }

    let asked = Instant::now();
    let mut new = Held::open(&second, token, &sandbox, instance, 6).await.unwrap();
    assert!(asked.elapsed() <= AT_ONCE + CROWD, "it took {:?}", asked.elapsed());
    assert_eq!(owner(&world, &sandbox).await, new.session_id);

    // What the old session says counts no more, and saying it ends it.
    let installed = ConfigUpdateResult {
        update_id: old.first_update.clone(),
        outcome: ConfigApplyOutcome::Applied.into(),
        ..Default::default()
    };
    old.say(Payload::ConfigUpdateResult(installed)).await;
    let ended = timeout(SOON, old.end()).await.expect("the old session ends").expect("with a status");
    assert_eq!(ended.code(), Code::Aborted, "{ended}");
    assert_eq!(world.phase("owned").await, SandboxPhase::Provisioning);
    assert_eq!(owner(&world, &sandbox).await, new.session_id);

    // Once the owner has gone, anybody of the sandbox may have it.
    drop(new.to_bridge);
    assert!(timeout(SOON, async { while let Ok(Some(_)) = new.from_bridge.message().await {} }).await.is_ok());
    let deadline = Instant::now() + SOON;
    let other = loop {
        match Held::open(&first, token, &sandbox, stranger, 1).await {
            Ok(held) => break held,
            Err(status) => assert!(status.code() == Code::Aborted && Instant::now() < deadline, "{status}"),
        }
    };
    assert_eq!(owner(&world, &sandbox).await, other.session_id);
}

/// By when a supervisor whose bridge is gone has a session elsewhere.
const ELSEWHERE: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_whose_bridge_dies_or_cannot_clean_up_has_a_session_elsewhere_within_five_seconds() {
    a_session_is_had_elsewhere(two_bridges()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_whose_bridge_dies_has_a_session_elsewhere_as_soon_with_three_brokers() {
    a_session_is_had_elsewhere(two_bridges().brokers(3)).await;
}

async fn a_session_is_had_elsewhere(plan: Plan) {
    let mut world = World::start(plan).await;
    let watched = world.watch("moves");
    let supervised = world.ready_sandbox("moves", &[]).await;
    let mut status = supervised.supervisor.status();

    // TERM while it can reach nobody: the end of its sessions cannot be told.
    let bridge = world.stack.node(Role::SupervisorBridge, 1);
    bridge.nats.cut();
    bridge.victim().terminate();
    let moved =
        timeout(ELSEWHERE + CROWD, status.wait_for(|status| status.sessions == 2 && status.connection.is_some()));
    assert!(moved.await.is_ok(), "after TERM: {:?}", supervised.supervisor.status().borrow());

    world.stack.node_mut(Role::SupervisorBridge, 1).nats.heal();
    world.stack.node_mut(Role::SupervisorBridge, 1).crash().await;
    world.stack.node_mut(Role::SupervisorBridge, 2).kill().await;
    let moved =
        timeout(ELSEWHERE + CROWD, status.wait_for(|status| status.sessions == 3 && status.connection.is_some()));
    assert!(moved.await.is_ok(), "after KILL: {:?}", supervised.supervisor.status().borrow());

    world.until_phase("moves", SandboxPhase::Ready).await;
    assert!(!watched.seen().has_shown(SandboxPhase::Error), "{:?}", watched.seen());
}
