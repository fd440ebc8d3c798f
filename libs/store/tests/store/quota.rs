//! How a caller's claims are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use roadstead_proto::role::Role;
use roadstead_store::mutation::{Command, Locks};
use roadstead_store::{Database, FlightError};
use roadstead_testkit::{eventually, soak};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::world::{CALLER, World, claimed, effect, login, settings};

/// A claim that is completed, or the refusal for a full quota.
async fn claim(store: &Database, caller: [u8; 32]) -> bool {
    loop {
        let command = Command { caller, ..claimed("w", Uuid::new_v4()) };
        let in_flight = store.first_flight(&command, &Locks::default()).await.unwrap();
        match in_flight.conclude(effect(Vec::new())).await {
            Ok(_) => return true,
            Err(FlightError::QuotaExceeded) => return false,
            Err(FlightError::Retry(_)) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_any_quota_exactly_as_much_is_given_whatever_the_slots_make_of_it() {
    let world = World::new().await;
    for quota in [1_u8, 7, 8, 9, 30] {
        let mut settings = settings(&login(&world.postgres, Role::Admission), Role::Admission);
        (settings.quota, settings.pool_size) = (quota.into(), 6);
        let (store, caller) = (Database::connect(settings).unwrap(), [quota; 32]);
        let mut claims = JoinSet::new();
        for _ in 0..quota + 6 {
            let store = store.clone();
            claims.spawn(async move { claim(&store, caller).await });
        }
        let given = claims.join_all().await.into_iter().filter(|given| *given).count();
        assert_eq!(given, usize::from(quota));
        assert_eq!(store.quota_used(&caller).await.unwrap(), u64::from(quota));
    }
}

/// Claims come up to the quota and go in bites, at the same time: the count is that of the claims there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_count_is_never_above_the_quota_and_in_the_end_that_of_the_claims() {
    let mut world = World::with(|settings| settings.quota = 20).await;
    let given = Arc::new(AtomicU64::new(0));
    let mut working = JoinSet::new();
    for _ in 0..6 {
        let (store, given) = (world.store.clone(), Arc::clone(&given));
        working.spawn(async move {
            for _ in 0..soak::count(20) {
                given.fetch_add(u64::from(claim(&store, CALLER).await), Ordering::Relaxed);
            }
        });
    }
    let mut gone = 0;
    while !working.is_empty() {
        assert!(world.store.quota_used(&CALLER).await.unwrap() <= 20);
        world.sql.run("update roadstead.claim set completed_at = completed_at - interval '25 hours'").await;
        gone += world.store.delete_old_claims_of(&CALLER, 7).await.unwrap();
        while working.try_join_next().is_some_and(|ended| ended.is_ok()) {}
    }
    let left: u64 = world.sql.value("select count(*) from roadstead.claim").await.parse().unwrap();
    assert!(given.load(Ordering::Relaxed) > 20, "nothing was given again");
    assert_eq!(left, given.load(Ordering::Relaxed) - gone);
    assert_eq!(world.store.quota_used(&CALLER).await.unwrap(), left);
}

#[tokio::test]
async fn the_first_claim_while_the_last_one_goes_finds_or_makes_all_slots() {
    let mut world = World::new().await;
    assert!(claim(&world.store, CALLER).await);
    let caller = "(select caller from roadstead.quota_slot limit 1)";
    world.sql.hold(&format!("select roadstead.uncount_claims({caller}, 1)")).await;
    let store = world.store.clone();
    let next = tokio::spawn(async move { claim(&store, CALLER).await });
    let waits = "select count(*) from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock' and query like '%count_claim%'";
    let postgres = &world.postgres;
    eventually(Duration::from_secs(20), "it waits", async || postgres.session().await.value(waits).await == "1").await;
    world.sql.run("commit").await;
    assert!(next.await.unwrap());
    let slots = "select count(*) || ' ' || sum(used) from roadstead.quota_slot";
    assert_eq!(world.sql.value(slots).await, "8 1");
}

#[tokio::test]
async fn a_quota_that_was_lowered_is_kept_whatever_the_slots_hold() {
    let mut world = World::new().await;
    for _ in 0..9 {
        assert!(claim(&world.store, CALLER).await);
    }
    world.sql.run("update roadstead.quota_slot set used = case slot when 3 then 9 else 0 end").await;
    let mut settings = settings(&login(&world.postgres, Role::Admission), Role::Admission);
    for (quota, given) in [(8, 0), (9, 0), (12, 3)] {
        settings.quota = quota;
        let store = Database::connect(settings.clone()).unwrap();
        for _ in 0..given {
            assert!(claim(&store, CALLER).await, "of {quota}");
        }
        assert!(!claim(&store, CALLER).await, "above {quota}");
        assert_eq!(store.quota_used(&CALLER).await.unwrap(), 9 + given);
    }
}

/// The COMMIT of a command holds what it counted until the log is on disk.
#[tokio::test]
async fn a_command_of_a_busy_caller_does_not_wait_for_the_count_of_another() {
    let mut world = World::new().await;
    assert!(claim(&world.store, CALLER).await);
    // Seven that are on their way to the disk, and one more.
    world.sql.hold("select 1 from roadstead.quota_slot where slot <> 5 for update").await;
    assert!(claim(&world.store, CALLER).await);
    let slot = "select used from roadstead.quota_slot where slot = 5";
    assert_eq!(world.postgres.session().await.value(slot).await, "1");
    world.sql.release().await;
}
