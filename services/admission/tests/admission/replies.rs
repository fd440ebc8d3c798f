//! Answers and acks that the broker never gets.

use roadstead_proto::inbox::Inbox;
use roadstead_proto::method::Method;
use roadstead_proto::role::Role;
use roadstead_testkit::proxy::Direction;

use crate::world::{Told, World, create_sandbox, fresh_id, root};

const CALLS: usize = 6;

/// Creates as many sandboxes at a time, every other one without a request id.
async fn create(world: &World, prefix: &str) -> Vec<Told> {
    let calls = (0..CALLS).map(|at| {
        let id = if at % 2 == 0 { fresh_id() } else { String::new() };
        let (edge, request) = (world.edge.clone(), create_sandbox("w", &format!("{prefix}-{at}"), &id));
        async move { edge.user_call(&root(), Method::CreateSandbox, &request).await }
    });
    futures_util::future::join_all(calls).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_lost_are_given_again_and_nothing_is_done_twice() {
    let mut world = World::new().await;
    world.workspace("w").await;
    let answers = Inbox::all_answers(Role::Edge);
    world.replicas[0].nats.drop_messages(Direction::ToServer, answers.trim_end_matches('*'), CALLS);
    let told = create(&world, "box").await;
    world.replicas[0].nats.dropped(u64::try_from(CALLS).unwrap()).await;
    // What was lost is told as if it had not been: as the first time, not as a replay.
    assert!(told.iter().all(|told| told.as_ref().is_ok_and(|(_, replayed)| !replayed)), "{told:?}");
    assert_eq!(world.count("sandbox").await, u64::try_from(CALLS).unwrap());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_whose_acks_are_lost_come_back_and_are_not_done_again() {
    let mut world = World::new().await;
    world.workspace("w").await;
    let nats = &world.replicas[0].nats;
    nats.drop_messages(Direction::ToServer, "$JS.ACK", CALLS);
    let told = create(&world, "box").await;
    assert!(told.iter().all(Result::is_ok), "{told:?}");
    let nats = &world.replicas[0].nats;
    nats.dropped(u64::try_from(CALLS).unwrap()).await;
    // The next ack is that of a command that came back.
    nats.halt_at(Direction::ToServer, "$JS.ACK");
    nats.halted(1).await;
    assert_eq!(world.count("sandbox").await, u64::try_from(CALLS).unwrap());
    assert_eq!(world.sql.value("select max(resource_version) from roadstead.sandbox").await, "1");
    world.replicas[0].nats.heal();
    world.stop().await;
}
