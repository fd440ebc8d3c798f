//! A replica that dies, freezes or loses a reply at the worst moment.

use std::time::Duration;

use roadstead_proto::inbox::Inbox;
use roadstead_proto::method::Method;
use roadstead_proto::role::Role;
use roadstead_testkit::proxy::Direction;

use crate::world::{World, create_sandbox, fresh_id, root, sandbox_of};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_dies_before_it_answers_is_answered_for_from_the_row() {
    let mut world = World::new().await;
    world.workspace("w").await;
    // It commits, and stops short of the answer.
    let answers = Inbox::all_answers(Role::Edge);
    let prefix = answers.split('*').next().unwrap().to_owned();
    world.replicas[0].nats.halt_at(Direction::ToServer, &prefix);
    let (edge, request) = (world.edge.clone(), create_sandbox("w", "box", ""));
    let call = tokio::spawn(async move { edge.user_call(&root(), Method::CreateSandbox, &request).await });
    world.replicas[0].nats.halted(1).await;
    assert_eq!(world.count("sandbox").await, 1);
    world.start_replica().await;
    let created = sandbox_of(call.await.unwrap());
    assert_eq!(created.metadata.unwrap().name, "box");
    assert_eq!(world.count("sandbox").await, 1);
    world.replicas[0].nats.heal();
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_commit_reply_is_resolved_by_the_same_command() {
    let mut world = World::new().await;
    world.workspace("w").await;
    for round in 0..5_u64 {
        let name = format!("box-{round}");
        let request = create_sandbox("w", &name, &fresh_id());
        // Whatever is in flight has its replies lost, then the connections break.
        let (edge, asked) = (world.edge.clone(), request.clone());
        let mut side = world.session().await;
        world.replicas[0].postgres.lose_replies();
        let call = tokio::spawn(async move { edge.user_call(&root(), Method::CreateSandbox, &asked).await });
        // The first flight may have come through; wait until its transaction is open or was never begun.
        for _ in 0..50 {
            let open = "select count(*) from pg_stat_activity where usename = 'roadstead_admission' and state like 'idle in%' and datname = current_database()";
            if side.value(open).await != "0" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        world.replicas[0].postgres.reset();
        world.replicas[0].postgres.heal();
        let created = sandbox_of(call.await.unwrap());
        assert_eq!(created.metadata.unwrap().name, name);
        assert_eq!(world.count("sandbox").await, round + 1);
        assert!(world.edge.user_call(&root(), Method::CreateSandbox, &request).await.unwrap().1);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_replica_loses_its_transaction_and_another_does_the_work_once() {
    let mut world = World::new().await;
    world.workspace("w").await;
    // Its first flight has its locks, and then nothing moves any more, on either side.
    let mut holder = world.session().await;
    holder.hold("select * from roadstead.workspace where name = 'w' for update").await;
    let (edge, request) = (world.edge.clone(), create_sandbox("w", "box", &fresh_id()));
    let call = tokio::spawn(async move { edge.user_call(&root(), Method::CreateSandbox, &request).await });
    let waiting =
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    while world.sql.value(waiting).await == "0" {
        tokio::task::yield_now().await;
    }
    world.replicas[0].postgres.cut();
    world.replicas[0].nats.cut();
    holder.release().await;
    world.start_replica().await;
    let created = sandbox_of(call.await.unwrap());
    assert_eq!(created.metadata.unwrap().name, "box");
    world.replicas[0].postgres.heal();
    world.replicas[0].nats.heal();
    assert_eq!(world.count("sandbox").await, 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_away_for_a_while_fails_no_command() {
    let mut world = World::new().await;
    world.workspace("w").await;
    world.replicas[0].postgres.cut();
    let calls = (0..8).map(|at| {
        let (edge, request) = (world.edge.clone(), create_sandbox("w", &format!("box-{at}"), ""));
        tokio::spawn(async move { edge.user_call(&root(), Method::CreateSandbox, &request).await })
    });
    let calls = calls.collect::<Vec<_>>();
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.replicas[0].postgres.reset();
    world.replicas[0].postgres.heal();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(world.count("sandbox").await, 8);
    world.stop().await;
}
