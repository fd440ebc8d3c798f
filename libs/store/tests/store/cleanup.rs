//! Clean-up of very many records, with everybody else at work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use roadstead_store::mutation::{Ledger, Locks, Write};
use roadstead_store::{Database, FlightError};
use roadstead_testkit::soak;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::world::{CALLER, World, claimed, effect, policy, sandbox};

/// Rows that one statement of these sweeps removes.
const BITE: u32 = 500;

/// Completed claims of one caller, a day old and more, with their count.
async fn expired_claims(world: &mut World, claims: u32) {
    let insert = format!(
        "insert into roadstead.claim (caller, method, scope, request_id, format, protected, key_id, fingerprint,
            command_id, created_at, completed_at)
         select decode(repeat('07', 32), 'hex'), 'CreateSandbox', 'w', gen_random_uuid(), 1, true, 'k1', '\\x09',
            gen_random_uuid(), clock_timestamp() - interval '25 hours', clock_timestamp() - interval '25 hours'
         from generate_series(1, {claims})"
    );
    world.sql.run(&insert).await;
    world.sql.run("delete from roadstead.quota_slot").await;
    let count = "insert into roadstead.quota_slot select caller, slot, roadstead.slot_part(count(*), slot)
        from roadstead.claim, generate_series(0, 7) slot group by caller, slot";
    world.sql.run(count).await;
}

async fn old_commands(world: &mut World, commands: u32) {
    let insert = format!(
        "insert into roadstead.command (id, method, caller, deadline, created_at, outcome, settled_at)
         select gen_random_uuid(), 'old', '', now(), now() - interval '1 hour', 1, now() - interval '1 hour'
         from generate_series(1, {commands})"
    );
    world.sql.run(&insert).await;
}

/// One call with that request id, as the executor makes it; whether it was executed.
async fn executed(store: &Database, id: Uuid) -> bool {
    match store.first_flight(&claimed("w", id), &Locks::default()).await {
        Ok(in_flight) if matches!(in_flight.loaded().ledger, Ledger::Fresh) => {
            in_flight.conclude(effect(Vec::new())).await.is_ok()
        }
        Ok(in_flight) => {
            in_flight.abandon().await;
            false
        }
        Err(FlightError::Busy(_) | FlightError::Retry(_)) => false,
        Err(error) => panic!("{error:?}"),
    }
}

/// The claims expire one by one while duplicates and the sweeps of two replicas are at them all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_at_the_moment_of_expiry_is_executed_once_whoever_clears_the_old_claim_away() {
    let mut world = World::new().await;
    let ids: Vec<Uuid> = (0..soak::count(24)).map(|_| Uuid::new_v4()).collect();
    for id in &ids {
        assert!(executed(&world.store, *id).await);
    }
    let unresolved = claimed("w", Uuid::new_v4());
    world
        .first(&unresolved, &Locks::default())
        .await
        .unwrap()
        .begin_effect(Uuid::new_v4(), std::time::Duration::from_secs(30))
        .await
        .unwrap();
    let window = soak::period(Duration::from_secs(1));
    world
        .sql
        .run(&format!(
            "update roadstead.claim set created_at = created_at - interval '25 hours', completed_at = case
                when completed_at is not null
                then clock_timestamp() - interval '24 hours' + random() * interval '{} seconds' end",
            window.as_secs()
        ))
        .await;
    let until = Instant::now() + window + Duration::from_millis(500);
    let mut sweeps = JoinSet::new();
    for _ in 0..2 {
        let store = world.role(roadstead_proto::role::Role::Admission);
        sweeps.spawn(async move {
            let mut cleared = 0;
            while Instant::now() < until {
                cleared += store.delete_old_claims(3).await.unwrap();
            }
            cleared
        });
    }
    let mut duplicates = JoinSet::new();
    for id in ids.iter().flat_map(|id| [*id; 2]) {
        let store = world.store.clone();
        duplicates.spawn(async move {
            let mut executions = 0;
            while Instant::now() < until {
                executions += u32::from(executed(&store, id).await);
            }
            (id, executions)
        });
    }
    let mut executions = std::collections::BTreeMap::<Uuid, u32>::new();
    for (id, more) in duplicates.join_all().await {
        *executions.entry(id).or_default() += more;
    }
    let cleared = sweeps.join_all().await;
    assert!(executions.values().all(|executions| *executions == 1), "{executions:?}; swept {cleared:?}");
    assert!(cleared.iter().sum::<u64>() > 0, "no sweep came into it");
    let kept = u64::try_from(ids.len()).unwrap() + 1;
    assert_eq!(world.sql.value("select count(*) from roadstead.claim").await, kept.to_string());
    assert_eq!(world.store.quota_used(&CALLER).await.unwrap(), kept);
    assert_eq!(world.store.unresolved_claims().await.unwrap(), 1);
}

#[tokio::test]
async fn a_sweep_takes_a_bite_at_a_time_and_leaves_what_somebody_holds() {
    let mut world = World::with(|settings| settings.quota = 1_000_000).await;
    world
        .first(&claimed("w", Uuid::new_v4()), &Locks::default())
        .await
        .unwrap()
        .begin_effect(Uuid::new_v4(), std::time::Duration::from_secs(30))
        .await
        .unwrap();
    expired_claims(&mut world, 2000).await;
    old_commands(&mut world, 1100).await;
    let mut side = world.postgres.session().await;
    let held = "select * from roadstead.claim where completed_at is not null order by created_at limit 1 for update";
    side.hold(held).await;
    let mut bites = Vec::new();
    while bites.last() != Some(&0) {
        bites.push(world.store.delete_old_claims(BITE).await.unwrap());
        // Its caller is not held up by it either.
        assert!(executed(&world.store, Uuid::new_v4()).await);
    }
    assert_eq!(bites, [500, 500, 500, 499, 0]);
    side.release().await;
    assert_eq!(world.store.delete_old_claims(BITE).await.unwrap(), 1);
    let mut bites = Vec::new();
    while bites.last() != Some(&0) {
        bites.push(world.store.delete_old_commands(BITE).await.unwrap());
    }
    assert_eq!(bites, [500, 500, 100, 0]);
    // The unresolved one, and those of the calls meanwhile.
    assert_eq!(world.store.quota_used(&CALLER).await.unwrap(), 1 + 5);
    assert_eq!(world.sql.value("select count(*) from roadstead.claim").await, "6");
    assert_eq!(world.store.unresolved_claims().await.unwrap(), 1);
}

/// Mutations of one caller by two at a time; how long each took, in order.
async fn latencies(store: &Database, mutations: u32) -> Vec<Duration> {
    let mut callers = JoinSet::new();
    for _ in 0..2 {
        let store = store.clone();
        callers.spawn(async move {
            let mut took = Vec::new();
            for _ in 0..mutations / 2 {
                let begun = Instant::now();
                assert!(executed(&store, Uuid::new_v4()).await);
                took.push(begun.elapsed());
            }
            took
        });
    }
    let mut took = callers.join_all().await.concat();
    took.sort_unstable();
    took
}

/// Sweeps as the role does, a bite and a pause, but without an end; how many records are gone.
async fn sweep(store: Database, stop: Arc<AtomicBool>) -> u64 {
    let mut cleared = 0;
    while !stop.load(Ordering::Relaxed) {
        cleared += store.delete_old_claims(BITE).await.unwrap() + store.delete_old_commands(BITE).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    cleared
}

/// Measured in turns, with the sweeps of two replicas and without, for the machine has other things to do as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutations_take_little_longer_while_thousands_of_records_are_cleared_away() {
    const MUTATIONS: u32 = 40;
    let mut world = World::with(|settings| settings.quota = 1_000_000).await;
    let replicas = [(); 2].map(|()| world.role(roadstead_proto::role::Role::Admission));
    latencies(&world.store, MUTATIONS).await;
    let (mut halves, mut most, mut cleared) = (Vec::new(), Vec::new(), 0);
    for _ in 0..soak::count(9) {
        let calm = latencies(&world.store, MUTATIONS).await;
        expired_claims(&mut world, 1000).await;
        old_commands(&mut world, 1000).await;
        let stop = Arc::new(AtomicBool::new(false));
        let sweeps: JoinSet<u64> = replicas.iter().map(|store| sweep(store.clone(), Arc::clone(&stop))).collect();
        let during = latencies(&world.store, MUTATIONS).await;
        stop.store(true, Ordering::Relaxed);
        cleared += sweeps.join_all().await.iter().sum::<u64>();
        let slower = |percent: usize| {
            let at = |took: &[Duration]| took[(took.len() - 1) * percent / 100].as_secs_f64();
            at(&during) / at(&calm)
        };
        halves.push(slower(50));
        most.push(slower(95));
    }
    assert!(cleared > 5000, "only {cleared} were cleared away meanwhile");
    halves.sort_by(f64::total_cmp);
    most.sort_by(f64::total_cmp);
    eprintln!("times as long, half and 95 of 100 of a turn: {halves:.2?}, {most:.2?}");
    assert!(halves[halves.len() / 2] < 3.0, "{halves:.2?}");
    // Of the slowest few the machine decides as much as we do.
    assert!(most[most.len() / 2] < 6.0, "{most:.2?}");
}

/// What it takes to delete a sandbox does not depend on what it leaves behind.
#[tokio::test]
async fn a_sandbox_with_a_long_history_of_policies_goes_at_once_and_the_history_a_bite_at_a_time() {
    let mut world = World::new().await;
    let w = world.workspace("w").await;
    let (gone, other) = (sandbox(&w, "gone"), sandbox(&w, "other"));
    for row in [&gone, &other] {
        let revision = Write::InsertPolicyRevision(policy(Some(row.id), 1));
        world.write(vec![Write::InsertSandbox(row.clone()), revision]).await;
    }
    // So large that Postgres keeps them beside the table.
    let revisions = soak::count(1000);
    let history = format!(
        "insert into roadstead.policy_revision (scope, version, hash, policy, status)
         select '{}', v, 'h', decode(repeat(md5(v::text), 1000), 'hex'), 4 from generate_series(2, {revisions}) v",
        gone.id
    );
    world.sql.run("alter table roadstead.policy_revision alter policy set storage external").await;
    world.sql.run(&history).await;
    world.write(vec![Write::DeleteSandbox(gone.id)]).await;
    let left = "select count(*) from roadstead.policy_revision";
    assert_eq!(world.sql.value(left).await, (revisions + 1).to_string());

    let mut side = world.postgres.session().await;
    side.hold("select * from roadstead.forgotten for update").await;
    assert_eq!(world.store.delete_forgotten(BITE).await.unwrap(), 0, "somebody else is at it");
    side.release().await;
    let mut bites = Vec::new();
    while bites.last() != Some(&0) {
        bites.push(world.store.delete_forgotten(BITE).await.unwrap());
    }
    assert!(bites.iter().all(|bite| *bite <= u64::from(BITE)), "{bites:?}");
    assert_eq!(bites.iter().sum::<u64>(), u64::from(revisions) + 1, "the history and the note of it");
    assert_eq!(world.sql.value(left).await, "1");
    assert!(world.load(other.id).await.is_some());
}
