//! `kill -9` and restart of each role under load.

use std::time::Duration;

use roadstead_e2e::{Fleet, Load, effect::Mutation, load};
use roadstead_testkit::{
    Stack, eventually, soak,
    stack::{Node, Plan, Role},
};

use crate::oracle::{SANDBOXES, assert_sound};

/// By when a supervisor whose bridge died has a session with another.
const RECONNECTED: Duration = Duration::from_secs(5);

/// Kills the two processes of a role in turn, with load on: before, while one is away, and after.
async fn kill_in_turn(stack: &mut Stack, fleet: &Fleet, role: Role) -> Vec<Mutation> {
    let load = Load::start(&Fleet::edges(stack), fleet.workspace(), &fleet.names());
    load.progress(40).await;
    for _ in 0..soak::factor() {
        for number in [1, 2] {
            stack.node_mut(role, number).kill().await;
            load.progress(20).await;
            stack.node_mut(role, number).resume();
            stack.node_mut(role, number).ready().await;
            load.progress(20).await;
        }
    }
    load.stop().await
}

/// Of a role behind the doors nobody notices that its processes die.
async fn nobody_notices(role: Role) {
    let mut stack = Stack::start(Plan::pairs()).await;
    let fleet = Fleet::start(&stack, SANDBOXES).await;
    let mutations = kill_in_turn(&mut stack, &fleet, role).await;
    load::assert_none_failed(&mutations);
    assert_sound(&stack, &fleet, &mutations).await;
    fleet.assert_watches_stayed();
    assert_eq!(fleet.sessions(), [1; SANDBOXES], "a session was lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_notices_that_admissions_are_killed_under_load() {
    nobody_notices(Role::Admission).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_notices_that_config_snapshots_are_killed_under_load() {
    nobody_notices(Role::ConfigSnapshot).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_notices_that_watches_are_killed_under_load() {
    nobody_notices(Role::Watch).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn supervisors_of_a_killed_bridge_are_back_within_five_seconds_and_their_sandboxes_stay_ready() {
    let mut stack = Stack::start(Plan::pairs()).await;
    let fleet = Fleet::start(&stack, SANDBOXES).await;
    let load = Load::start(&Fleet::edges(&stack), fleet.workspace(), &fleet.names());
    load.progress(40).await;
    for _ in 0..soak::factor() {
        for number in [1, 2] {
            let bridge = stack.node_mut(Role::SupervisorBridge, number);
            let (held, before) = (sessions_held(bridge).await, fleet.sessions().iter().sum::<u64>());
            bridge.kill().await;
            eventually(RECONNECTED, "its supervisors have new sessions", async || {
                let open = fleet.members().iter().all(|member| member.status().connection.is_some());
                let are_back = open && fleet.sessions().iter().sum::<u64>() >= before + held;
                if are_back { Ok(()) } else { Err(format!("of {held}: {:?}", fleet.ends())) }
            })
            .await;
            bridge.resume();
            bridge.ready().await;
            load.progress(20).await;
        }
    }
    let mutations = load.stop().await;
    load::assert_none_failed(&mutations);
    assert_sound(&stack, &fleet, &mutations).await;
    fleet.assert_watches_stayed();
}

async fn sessions_held(bridge: &Node) -> u64 {
    let metrics = bridge.metrics().await;
    let line = metrics.lines().find(|line| line.starts_with("roadstead_sessions_held")).unwrap();
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}
