use std::time::{Duration, SystemTime};

use bytes::Bytes;
use roadstead_store::liveness::ProcessKind;
use roadstead_store::mutation::{Command, Locks};
use uuid::Uuid;

use crate::world::{CALLER, World, claimed, command, effect, refusal};

async fn age(world: &mut World, table: &str, columns: &[&str], by: &str) {
    let set: Vec<_> = columns.iter().map(|column| format!("{column} = {column} - interval '{by}'")).collect();
    world.sql.run(&format!("update roadstead.{table} set {}", set.join(", "))).await;
}

async fn count(world: &mut World, table: &str) -> String {
    world.sql.value(&format!("select count(*) from roadstead.{table}")).await
}

#[tokio::test]
async fn commands_go_when_they_were_settled_long_enough_ago() {
    let mut world = World::new().await;
    for _ in 0..3 {
        world.first(&command(), &Locks::default()).await.unwrap().conclude(refusal()).await.unwrap();
    }
    world
        .first(&command(), &Locks::default())
        .await
        .unwrap()
        .begin_effect(Uuid::new_v4(), Duration::from_secs(30))
        .await
        .unwrap();
    assert_eq!(world.store.delete_old_commands(10).await.unwrap(), 0);
    // An effect that took long counts from its end.
    age(&mut world, "command", &["created_at"], "16 minutes").await;
    assert_eq!(world.store.delete_old_commands(10).await.unwrap(), 0);
    age(&mut world, "command", &["created_at", "settled_at"], "16 minutes").await;
    assert_eq!(world.store.delete_old_commands(2).await.unwrap(), 2);
    assert_eq!(world.store.delete_old_commands(2).await.unwrap(), 1);
    assert_eq!(world.store.delete_old_commands(2).await.unwrap(), 0);
    assert_eq!(world.store.unresolved((SystemTime::UNIX_EPOCH, Uuid::nil()), 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn claims_go_a_day_after_completion_and_the_quota_with_them() {
    let mut world = World::new().await;
    let other = [8; 32];
    for caller in [CALLER, CALLER, other] {
        let command = Command { caller, ..claimed("w", Uuid::new_v4()) };
        world.first(&command, &Locks::default()).await.unwrap().conclude(effect(Vec::new())).await.unwrap();
    }
    let unresolved = claimed("w", Uuid::new_v4());
    world
        .first(&unresolved, &Locks::default())
        .await
        .unwrap()
        .begin_effect(Uuid::new_v4(), Duration::from_secs(30))
        .await
        .unwrap();
    assert_eq!(world.store.quota_used(&CALLER).await.unwrap(), 3);
    age(&mut world, "claim", &["created_at"], "25 hours").await;
    assert_eq!(world.store.delete_old_claims(10).await.unwrap(), 0);
    age(&mut world, "claim", &["created_at", "completed_at"], "25 hours").await;
    assert_eq!(world.store.delete_old_claims(2).await.unwrap(), 2);
    assert_eq!(world.store.delete_old_claims(2).await.unwrap(), 1);
    assert_eq!(world.store.delete_old_claims(2).await.unwrap(), 0);
    assert_eq!(world.store.quota_used(&CALLER).await.unwrap(), 1);
    assert_eq!(world.store.quota_used(&other).await.unwrap(), 0);
    assert_eq!(count(&mut world, "quota").await, "1");
    assert_eq!(world.store.unresolved_claims().await.unwrap(), 1);
}

#[tokio::test]
async fn sweeps_at_the_same_time_count_each_claim_once() {
    let mut world = World::new().await;
    for caller in [[1; 32], [2; 32], [3; 32]] {
        for _ in 0..4 {
            let command = Command { caller, ..claimed("w", Uuid::new_v4()) };
            world.first(&command, &Locks::default()).await.unwrap().conclude(effect(Vec::new())).await.unwrap();
        }
    }
    age(&mut world, "claim", &["created_at", "completed_at"], "25 hours").await;
    let sweeps: Vec<_> = (0..4)
        .map(|_| {
            let store = world.store.clone();
            tokio::spawn(async move {
                let mut total = 0;
                loop {
                    match store.delete_old_claims(2).await.unwrap() {
                        0 => return total,
                        deleted => total += deleted,
                    }
                }
            })
        })
        .collect();
    let mut total = 0;
    for sweep in sweeps {
        total += sweep.await.unwrap();
    }
    assert_eq!(total, 12);
    assert_eq!(count(&mut world, "quota").await, "0");
}

#[tokio::test]
async fn processes_go_when_nothing_refers_to_them() {
    let mut world = World::new().await;
    let w = world.workspace("w").await;
    let (idle, owner) = (Uuid::new_v4(), Uuid::new_v4());
    for id in [idle, owner] {
        world.store.renew(ProcessKind::Bridge, id).await.unwrap();
    }
    let mut row = crate::world::sandbox(&w, "s");
    row.session = Some(crate::world::session(owner));
    world.write(vec![roadstead_store::mutation::Write::InsertSandbox(row)]).await;
    assert_eq!(world.store.delete_old_processes(10).await.unwrap(), 0);
    age(&mut world, "process", &["renewed_at"], "2 hours").await;
    assert_eq!(world.store.delete_old_processes(10).await.unwrap(), 1);
    assert_eq!(world.sql.value("select id from roadstead.process").await, owner.to_string());
}

#[tokio::test]
async fn deliveries_set_aside_are_kept_counted_and_go_in_the_end() {
    let mut world = World::new().await;
    let reason = "x".repeat(5000);
    world.store.set_aside("roadstead.command.X", &reason, &Bytes::from_static(b"\0sealed")).await.unwrap();
    assert_eq!(world.store.set_aside_count().await.unwrap(), 1);
    let kept = world.sql.run("select subject, length(reason), payload from roadstead.set_aside").await;
    assert_eq!(kept, [["roadstead.command.X", "1024", "\\x007365616c6564"]]);
    assert_eq!(world.store.delete_old_set_aside(10).await.unwrap(), 0);
    age(&mut world, "set_aside", &["created_at"], "31 days").await;
    assert_eq!(world.store.delete_old_set_aside(10).await.unwrap(), 1);
}
