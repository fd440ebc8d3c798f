//! `roadstead migrate` is killed at any moment, and run by many at once.

use std::time::{Duration, Instant};

use roadstead_testkit::stack::Plan;
use roadstead_testkit::{Database, Stack, eventually, soak};

const READY: Duration = Duration::from_secs(60);

fn migrate(stack: &Stack, database: &Database) -> tokio::process::Child {
    let mut command = stack.command(&["migrate", "--database-url", &database.owner().url()]);
    command.env("ROADSTEAD_OWNER_KEYS", stack.keys_of("owner"));
    command.spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_killed_at_any_moment_leaves_nothing_in_the_way_of_the_next_ones() {
    let stack = Stack::start(Plan::single()).await;
    // How long one takes here tells when to kill the others.
    let (database, begun) = (slow().await, Instant::now());
    assert!(migrate(&stack, &database).wait().await.unwrap().success());
    let (whole, parts) = (begun.elapsed(), soak::count(3));
    let mut killed = 0;
    for part in 1..=parts {
        let database = slow().await;
        let mut migration = migrate(&stack, &database);
        tokio::time::sleep(whole * part / (parts + 1)).await;
        if migration.try_wait().unwrap().is_none() {
            migration.kill().await.unwrap();
            killed += 1;
        }
        database.session().await.run("drop event trigger slow").await;
        let begun = Instant::now();
        let mut next: Vec<_> = (0..3).map(|_| migrate(&stack, &database)).collect();
        for migration in &mut next {
            assert!(migration.wait().await.unwrap().success());
        }
        assert!(begun.elapsed() < READY, "{:?}", begun.elapsed());
        is_whole(&database).await;
    }
    assert!(killed > 0, "all were faster than the first");
}

/// An empty database in which each definition takes 10 ms more: next to that, how busy the machine is at some moment
/// makes little difference to how long a migration takes.
async fn slow() -> Database {
    let database = Database::empty().await;
    let mut sql = database.session().await;
    sql.run("create function slow() returns event_trigger language plpgsql as 'begin perform pg_sleep(0.01); end'")
        .await;
    sql.run("create event trigger slow on ddl_command_end execute function slow()").await;
    database
}

async fn is_whole(database: &Database) {
    let mut sql = database.session().await;
    let applied = "select count(distinct version) = count(*) and count(*) > 0 from roadstead.refinery_schema_history";
    assert_eq!(sql.value(applied).await, "t");
    assert_eq!(sql.value("select count(*) from roadstead.workspace where name = 'default'").await, "1");
    assert_eq!(sql.value("select value from roadstead.epoch").await, "1");
    let locks = "select count(*) from pg_locks l join pg_database d on d.oid = l.database
        where l.locktype = 'advisory' and d.datname = current_database()";
    eventually(READY, "no lock is left behind", async || database.session().await.value(locks).await == "0").await;
}
