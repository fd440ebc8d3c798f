use std::time::{Duration, SystemTime};

use bytes::Bytes;
use roadstead_proto::api::v1::PolicyStatus;
use roadstead_proto::role::Role;
use roadstead_store::liveness::ProcessKind;
use roadstead_store::mutation::{Command, Locks, Write};
use roadstead_store::read::Reader;
use roadstead_store::row;
use uuid::Uuid;

use crate::world::{CALLER, World, claimed, command, effect, policy, refusal, sandbox};

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
    assert_eq!(world.sql.value("select count(distinct caller) from roadstead.quota_slot").await, "1");
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
    assert_eq!(count(&mut world, "quota_slot").await, "0");
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

/// Versions of a history, in order.
async fn versions(world: &mut World, scope: Option<Uuid>) -> Vec<u32> {
    let scope = scope.unwrap_or_default();
    let sql = format!(
        "select string_agg(version::text, ' ' order by version) from roadstead.policy_revision where scope = '{scope}'"
    );
    world.sql.value(&sql).await.split(' ').map(|version| version.parse().unwrap()).collect()
}

#[tokio::test]
async fn a_history_keeps_the_newest_hundred_the_loaded_and_the_current_revision() {
    let mut world = World::new().await;
    let w = world.workspace("w").await;
    let s = row::Sandbox { current_policy_version: 3, ..sandbox(&w, "s") };
    let other = world.sandbox(&w, "other").await;
    world.write(vec![Write::InsertSandbox(s.clone())]).await;
    for scope in [Some(s.id), Some(other.id), None] {
        world.write((1..=100).map(|version| Write::InsertPolicyRevision(policy(scope, version))).collect()).await;
    }
    let settle = |version| Write::SettlePolicy {
        scope: Some(s.id),
        version,
        status: PolicyStatus::Loaded,
        error: String::new(),
    };
    world.write(vec![settle(5)]).await;
    assert_eq!(versions(&mut world, Some(s.id)).await, (1..=100).collect::<Vec<_>>());

    for version in 101..=110 {
        let marks = world.write(vec![Write::InsertPolicyRevision(policy(Some(s.id), version))]).await;
        assert_eq!(marks.len(), 1, "what goes leaves no mark of its own");
    }
    let kept: Vec<_> = [3, 5].into_iter().chain(11..=110).collect();
    assert_eq!(versions(&mut world, Some(s.id)).await, kept);
    for untouched in [Some(other.id), None] {
        assert_eq!(versions(&mut world, untouched).await, (1..=100).collect::<Vec<_>>());
    }
    world.write((101..=103).map(|version| Write::InsertPolicyRevision(policy(None, version))).collect()).await;
    assert_eq!(versions(&mut world, None).await, (4..=103).collect::<Vec<_>>());

    // Reads right afterwards, across the gap.
    let watch = world.role(Role::Watch);
    for (asked, found) in [(None, Some(110)), (Some(5), Some(5)), (Some(3), Some(3)), (Some(4), None), (Some(10), None)]
    {
        let read = watch.policy_revision("w", "s", Reader::ADMIN, asked).await.unwrap().found.unwrap();
        assert_eq!(read.revisions.items.first().map(|row| row.version), found);
        assert_eq!(read.active_version, 3);
    }
    let page = watch.policy_revisions("w", "s", Reader::ADMIN, Some(13), 9).await.unwrap().found.unwrap();
    assert_eq!(page.revisions.items.iter().map(|row| row.version).collect::<Vec<_>>(), [12, 11, 5, 3]);

    // The next one that is loaded takes the place of the old one.
    world.write(vec![settle(110)]).await;
    world.write(vec![Write::InsertPolicyRevision(policy(Some(s.id), 111))]).await;
    assert_eq!(versions(&mut world, Some(s.id)).await, [3].into_iter().chain(12..=111).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_history_that_has_grown_long_gets_shorter_a_few_at_a_time() {
    let mut world = World::new().await;
    let w = world.workspace("w").await;
    let s = world.sandbox(&w, "s").await;
    let grown = format!(
        "insert into roadstead.policy_revision (scope, version, hash, policy, status) select '{}', n, '', '', 4 from generate_series(1, 130) n",
        s.id
    );
    world.sql.run(&grown).await;
    for (version, oldest) in [(131, 11), (132, 21), (133, 31), (134, 35), (135, 36)] {
        world.write(vec![Write::InsertPolicyRevision(policy(Some(s.id), version))]).await;
        assert_eq!(versions(&mut world, Some(s.id)).await, (oldest..=version).collect::<Vec<_>>());
    }
}
