use std::time::{Duration, Instant};

use roadstead_proto::role::Role;
use roadstead_store::migrate::{migrate, raise_epoch};
use roadstead_testkit::sql::Session;

use crate::world::{World, login, passwords};

#[tokio::test]
async fn migrations_run_twice_and_by_several_at_once() {
    let postgres = roadstead_testkit::Database::empty().await;
    let url = postgres.owner().url_with_password().into();
    let passwords = passwords();
    let (one, other) = tokio::join!(migrate(&url, &passwords), migrate(&url, &passwords));
    one.unwrap();
    other.unwrap();
    migrate(&url, &passwords).await.unwrap();
    let mut sql = postgres.session().await;
    assert_eq!(sql.value("select count(*) from roadstead.workspace where name = 'default'").await, "1");
    assert_eq!(sql.value("select value from roadstead.epoch").await, "1");
}

/// A session's lock would stay behind in a pooler's session, which its holder need not meet again.
#[tokio::test]
async fn the_turn_to_migrate_is_a_transactions_and_who_waits_for_it_holds_nothing() {
    let postgres = roadstead_testkit::Database::empty().await;
    let mut side = postgres.session().await;
    // The first to have the turn stands still: the schema is being made by somebody else.
    side.hold("create schema roadstead").await;
    let migration = || {
        let url = postgres.owner().url_with_password().into();
        tokio::spawn(async move { migrate(&url, &passwords()).await })
    };
    let first = migration();
    let mut look = postgres.session().await;
    let holders = "select l.pid, a.state from pg_locks l join pg_stat_activity a using (pid)
        where l.locktype = 'advisory' and a.datname = current_database()";
    let waits = "select count(*) from pg_stat_activity where datname = current_database()
        and wait_event_type = 'Lock' and query like 'CREATE SCHEMA%'";
    until(&mut look, waits, "1").await;
    let held = look.run(holders).await;
    assert_eq!(held.iter().map(|row| row[1].as_str()).collect::<Vec<_>>(), ["idle in transaction"]);

    let others: Vec<_> = (0..3).map(|_| migration()).collect();
    let owners = "select count(*) from pg_stat_activity where datname = current_database() and usename = 'roadstead'";
    until(&mut look, owners, "5").await;
    for _ in 0..20 {
        assert_eq!(look.run(holders).await.len(), 1, "somebody else has, or queues for, the lock");
    }
    side.release().await;
    for migration in others.into_iter().chain([first]) {
        migration.await.unwrap().unwrap();
    }
    until(&mut look, owners, "0").await;
    assert_eq!(look.value("select count(*) from roadstead.workspace where name = 'default'").await, "1");
}

/// Waits until a query answers so.
async fn until(side: &mut Session, sql: &str, expected: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let value = side.value(sql).await;
        if value == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{sql}: {value}, not {expected}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_epoch_rises_only_by_its_owner() {
    let world = World::new().await;
    let raised = raise_epoch(&world.postgres.owner().url_with_password().into()).await.unwrap();
    assert_eq!(raised.before, 1);
    assert!(raised.now > 1);
    assert_eq!(world.role(Role::ConfigSnapshot).epoch().await.unwrap(), raised.now);
    let mut admission = Session::open(&login(&world.postgres, Role::Admission)).await;
    let refused = admission.try_run("update roadstead.epoch set value = 9").await.unwrap_err();
    assert_eq!(refused.state, "42501");
}

#[tokio::test]
async fn each_life_after_a_restore_has_an_epoch_above_all_before_it_whatever_was_restored() {
    let mut world = World::new().await;
    let owner = world.postgres.owner().url_with_password().into();
    let ahead = i64::MAX as u64 / 2;
    let mut last = 0;
    // The same backup twice, then one of a server whose clock was ahead.
    for (restored, at_least) in [(1, 2), (1, 2), (ahead, ahead + 1)] {
        world.sql.run(&format!("update roadstead.epoch set value = {restored}")).await;
        let raised = raise_epoch(&owner).await.unwrap();
        assert_eq!(raised.before, restored);
        assert!(raised.now > last && raised.now >= at_least, "{raised:?} after {last}");
        last = raised.now;
    }
}

/// What each role may not do; `insufficient_privilege` is the answer to all of it.
#[tokio::test]
async fn roles_reach_no_further_than_their_grants() {
    let world = World::new().await;
    let forbidden: [(Role, &[&str]); 3] = [
        (
            Role::Admission,
            &[
                "create table roadstead.t ()",
                "drop table roadstead.outbox",
                "truncate roadstead.command",
                "alter table roadstead.sandbox disable trigger all",
                "select nextval('roadstead.snapshot_sequence')",
                "select * from roadstead.refinery_schema_history",
            ],
        ),
        (
            Role::ConfigSnapshot,
            &[
                "insert into roadstead.outbox (kind, workspace_id, object_id, configuration) \
                 values ('x', gen_random_uuid(), gen_random_uuid(), true)",
                "update roadstead.sandbox set name = 'x'",
                "delete from roadstead.workspace",
                "select * from roadstead.workload_template",
                "select * from roadstead.service_endpoint",
                "select * from roadstead.command",
                "select * from roadstead.claim",
                "select * from roadstead.process",
                "delete from roadstead.provider_receipt",
                "update roadstead.observation set readiness_number = 1",
                "select setval('roadstead.snapshot_sequence', 1)",
            ],
        ),
        (
            Role::Watch,
            &[
                "update roadstead.sandbox set name = 'x'",
                "delete from roadstead.member",
                "delete from roadstead.workload_template",
                "update roadstead.service_endpoint set target_port = 1",
                "select credential_values from roadstead.provider",
                "select * from roadstead.provider",
                "select * from roadstead.provider_receipt",
                "select * from roadstead.observation",
                "select * from roadstead.command",
                "select * from roadstead.claim",
                "select nextval('roadstead.snapshot_sequence')",
            ],
        ),
    ];
    for (role, statements) in forbidden {
        let mut session = Session::open(&login(&world.postgres, role)).await;
        for statement in statements {
            let refused = session.try_run(statement).await.expect_err(statement);
            assert_eq!(refused.state, "42501", "{role}: {statement}");
        }
    }
}
