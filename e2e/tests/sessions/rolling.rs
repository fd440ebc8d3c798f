//! Bridges that are restarted one after the other: their sessions move, evenly and unseen.

use std::time::Duration;

use roadstead_e2e::Watched;
use roadstead_proto::api::v1::SandboxPhase;
use roadstead_supervisor::Observation;
use roadstead_testkit::stack::{Plan, Role};
use roadstead_testkit::{eventually, soak};

use crate::world::{SOON, Supervised, World};

const BRIDGES: usize = 3;
/// What the fault allows after the last restart.
const EVEN: Duration = Duration::from_secs(300);

/// What each bridge says of itself.
async fn said(world: &World, name: &str, labels: &str) -> Vec<u32> {
    let mut said = Vec::new();
    for number in 1..=BRIDGES {
        let series = format!("roadstead_{name}{{role=\"supervisor-bridge\"{labels}}}");
        let value = world.stack.node(Role::SupervisorBridge, number).metric(&series).await;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
        said.push(value as u32);
    }
    said
}

fn sorted(held: &[u32]) -> Vec<u32> {
    let mut sorted = held.to_vec();
    sorted.sort_unstable();
    sorted
}

/// How many sessions the bridges hold, as the database says.
async fn owned(world: &World) -> Vec<u32> {
    let counted = "select count(*) from roadstead.sandbox where session_id is not null group by session_bridge_id";
    let counted = world.stack.session().await.run(counted).await;
    sorted(&counted.iter().map(|row| row[0].parse().unwrap()).collect::<Vec<_>>())
}

/// Whether each is within three tenths of the mean.
fn is_even(held: &[u32]) -> bool {
    let (count, total) = (u32::try_from(held.len()).unwrap(), held.iter().sum::<u32>());
    held.iter().all(|one| (total * 7..=total * 13).contains(&(one * count * 10)))
}

/// How many sessions it has had, and how many updates.
fn counts(supervised: &Supervised) -> (usize, usize) {
    let seen = supervised.recorder.observations();
    let count = |wanted: fn(&Observation) -> bool| seen.iter().filter(|one| wanted(one)).count();
    (count(|one| matches!(one, Observation::Accepted { .. })), count(|one| matches!(one, Observation::Received(_))))
}

#[tokio::test(flavor = "multi_thread")]
async fn after_bridges_were_restarted_in_turn_all_hold_the_same_and_nobody_saw_a_sandbox_move() {
    let plan = Plan::single().replicas(Role::SupervisorBridge, BRIDGES);
    let plan = plan.flag(Role::SupervisorBridge, "--advertise=http://{listen}");
    let mut world = World::start(plan.flag(Role::SupervisorBridge, "--settle-seconds=1")).await;
    let mut fleet: Vec<(Supervised, Watched)> = Vec::new();
    for number in 0..soak::count(12) {
        let name = format!("rolled-{number}");
        world.sandbox(&name, &[]).await;
        let mut settings = world.settings(&name).await;
        settings.bridges.rotate_left(number as usize % BRIDGES);
        fleet.push((Supervised::start(settings), world.watch(&name)));
    }
    for (_, watched) in &fleet {
        watched.until(SOON, "READY", |seen| seen.has_shown(SandboxPhase::Ready)).await;
    }
    // The policy that a supervisor proposed has come back to it.
    for (supervised, _) in &fleet {
        supervised.frame(SOON, "a policy", |frame| frame.config.as_ref().is_some_and(|seen| seen.has_policy)).await;
    }
    let before: Vec<_> = fleet.iter().map(|(supervised, _)| counts(supervised)).collect();

    for number in 1..=BRIDGES {
        let bridge = world.stack.node_mut(Role::SupervisorBridge, number);
        bridge.stop().await;
        bridge.resume();
        bridge.ready().await;
    }
    eventually(EVEN, "the sessions are even, and each bridge says what is so", async || {
        let held = said(&world, "sessions_held", "").await;
        let open = fleet.iter().filter(|(one, _)| one.supervisor.status().borrow().connection.is_some()).count();
        let so =
            held.iter().sum::<u32>() as usize == open && open == fleet.len() && owned(&world).await == sorted(&held);
        if so && is_even(&held) { Ok(()) } else { Err(format!("{held:?}, {open} are open")) }
    })
    .await;
    // The last one began with nothing.
    let rebalanced = said(&world, "session_moves_total", ",reason=\"rebalanced\"").await;
    assert!(rebalanced.iter().sum::<u32>() >= 1, "{rebalanced:?}");
    let shown = world.stack.run(&["bridge", "rebalance"]).await;
    assert!((1..=BRIDGES).all(|number| shown.contains(&world.stack.bridge(number))), "{shown}");

    for ((supervised, watched), before) in fleet.iter().zip(before) {
        let after = counts(supervised);
        let (moves, updates) = (after.0 - before.0, after.1 - before.1);
        assert!(moves >= 1, "every bridge was restarted");
        // A bootstrap for each move, and nothing besides.
        assert_eq!(updates, moves, "{:#?}", supervised.recorder.observations());
        let phases: Vec<_> = watched.seen().shown().map(|(_, phase)| phase).collect();
        let ready = phases.iter().position(|phase| *phase == SandboxPhase::Ready).unwrap();
        assert!(phases[ready..].iter().all(|phase| *phase == SandboxPhase::Ready), "{phases:?}");
    }
}
