//! The kit's own servers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use roadstead_testkit::{Broker, Database, Postgres, eventually, sql::Session};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpStream,
};

async fn seeded() -> Database {
    Database::from_template("kit_seeded", async |owner| {
        let mut session = Session::open(&owner).await;
        session.run("create table seed (value int); insert into seed values (1), (2)").await;
    })
    .await
}

#[tokio::test]
async fn each_test_has_a_copy_of_the_template_to_itself() {
    let (one, other) = (seeded().await, seeded().await);
    one.session().await.run("delete from seed").await;
    assert_eq!(one.session().await.value("select count(*) from seed").await, "0");
    assert_eq!(other.session().await.value("select count(*) from seed").await, "2");
}

#[tokio::test]
async fn the_owner_owns_its_database_and_is_no_superuser() {
    let database = Database::empty().await;
    let mut owner = Session::open(&database.owner()).await;
    owner.run("create schema own").await;
    let error = owner.try_run("select pg_read_file('/etc/passwd')").await.unwrap_err();
    assert_eq!(error.state, "42501", "{error}");
}

#[tokio::test]
async fn a_held_row_stays_locked_until_it_is_released() {
    let database = seeded().await;
    let (mut holder, mut other) = (database.session().await, database.session().await);
    assert_eq!(holder.hold("select value from seed where value = 1 for update").await, [["1"]]);
    other.run("set lock_timeout = '50ms'").await;
    let error = other.try_run("delete from seed where value = 1").await.unwrap_err();
    assert_eq!(error.state, "55P03", "{error}");
    holder.release().await;
    other.run("delete from seed where value = 1").await;
}

#[tokio::test]
async fn ended_sessions_are_gone_and_say_so() {
    let database = seeded().await;
    let mut owner = Session::open(&database.owner()).await;
    owner.run("select 1").await;
    assert_eq!(database.end_sessions_of("roadstead").await, 1);
    assert!(owner.try_run("select 1").await.is_err());
}

#[tokio::test]
async fn a_dropped_database_is_removed() {
    let database = seeded().await;
    let name = database.name().to_owned();
    let witness = seeded().await;
    drop(database);
    let sql = format!("select count(*) from pg_database where datname = '{name}'");
    eventually(Duration::from_secs(10), "the database is gone", async || {
        witness.session().await.value(&sql).await == "0"
    })
    .await;
}

/// What a broker greets with tells one start from another.
async fn greeting(broker: &Broker) -> std::io::Result<String> {
    let mut line = String::new();
    BufReader::new(TcpStream::connect(("127.0.0.1", broker.port())).await?).read_line(&mut line).await?;
    Ok(line)
}

#[tokio::test]
async fn a_broker_comes_back_at_its_address() {
    let mut broker = Broker::start("max_payload: 4MB").await;
    let first = greeting(&broker).await.unwrap();
    assert!(first.contains("\"max_payload\":4194304") && first.contains("\"jetstream\":true"), "{first}");
    broker.kill().await;
    assert!(greeting(&broker).await.is_err());
    broker.resume().await;
    assert_ne!(greeting(&broker).await.unwrap(), first);
    broker.wipe().await;
    assert!(greeting(&broker).await.unwrap().starts_with("INFO"));
}

#[tokio::test]
async fn a_frozen_broker_answers_once_it_is_thawed() {
    let broker = Broker::start("").await;
    broker.victim().freeze();
    let frozen = tokio::time::timeout(Duration::from_millis(200), greeting(&broker)).await;
    assert!(frozen.is_err(), "it greeted although frozen");
    broker.victim().thaw();
    eventually(Duration::from_secs(5), "the broker greets", || greeting(&broker)).await;
}

#[tokio::test]
async fn two_brokers_do_not_meet() {
    let (one, other) = (Broker::start("").await, Broker::start("").await);
    assert_ne!(one.url(), other.url());
}

#[tokio::test]
async fn a_postgres_of_ones_own_survives_being_killed() {
    let mut postgres = Postgres::start().await;
    let mut owner = Session::open(&postgres.owner()).await;
    owner.run("create table kept (value int)").await;
    postgres.kill().await;
    assert!(owner.try_run("select 1").await.is_err());
    postgres.resume().await;
    assert_eq!(Session::open(&postgres.superuser()).await.value("select count(*) from kept").await, "0");
}
