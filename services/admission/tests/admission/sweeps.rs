//! What time brings about.

use std::time::Duration;

use roadstead_proto::api::v1::SandboxPhase;
use roadstead_proto::subject::Report;

use crate::sessions::{applied, register};
use crate::world::{LONG, World};

/// Waits until a query answers so.
pub(crate) async fn becomes(world: &World, sql: &str, expected: &str) {
    let mut side = world.session().await;
    let begun = std::time::Instant::now();
    loop {
        let value = side.value(sql).await;
        if value == expected {
            return;
        }
        assert!(begun.elapsed() < LONG, "{sql}: {value}, not {expected}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_whose_bridge_is_gone_is_lost() {
    let mut world = World::new().await;
    world.workspace("w").await;
    let id = world.sandbox("w", "box").await.metadata.unwrap().id;
    let supervisor = world.supervisor(&id, 1);
    world.bridge.report(&supervisor, Report::RegisterSession, &register(1, 10, 1)).await.unwrap();
    world.bridge.report(&supervisor, Report::SessionResult, &applied(1, 1, 0)).await.unwrap();

    // The bridge has been silent for long, and admission has been listening for long.
    becomes(&world, "select count(*) > 0 from roadstead.process where kind = 2", "t").await;
    world
        .sql
        .run("update roadstead.process set since = clock_timestamp() - interval '30 seconds' where kind = 2")
        .await;
    world
        .sql
        .run("update roadstead.process set renewed_at = clock_timestamp() - interval '30 seconds' where kind = 1")
        .await;
    becomes(
        &world,
        "select phase || ' ' || (session_id is null)::text from roadstead.sandbox",
        &format!("{} true", SandboxPhase::Provisioning as i32),
    )
    .await;
    // It is told so when it renews.
    assert_eq!(world.sql.value("select judged_at is not null from roadstead.process where kind = 1").await, "t");
    world.quiet().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn provisioning_that_takes_too_long_ends_in_an_error() {
    let world = World::with(1, &["--provisioning-seconds=1"]).await;
    world.workspace("w").await;
    world.sandbox("w", "box").await;
    becomes(&world, "select phase from roadstead.sandbox", &(SandboxPhase::Error as i32).to_string()).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_records_go_and_unresolved_ones_stay() {
    let mut world = World::new().await;
    world.workspace("w").await;
    for (kind, outcome) in [("old", "1"), ("started", "0")] {
        world
            .sql
            .run(&format!(
                "insert into roadstead.command (id, method, caller, deadline, created_at, outcome, settled_at) \
                 values (gen_random_uuid(), '{kind}', '', now(), now() - interval '1 hour', {outcome}, now() - interval '1 hour')"
            ))
            .await;
    }
    becomes(&world, "select count(*) from roadstead.command where method = 'old'", "0").await;
    assert_eq!(world.count("command where method = 'started'").await, 1);
    assert_eq!(world.count("command where method = 'CreateWorkspace'").await, 1);
    world.stop().await;
}
