//! Mutations whose effect leaves Postgres: at most once, and honest about what is not known.

use std::sync::Arc;
use std::time::Duration;

use roadstead_proto::api::v1::RotateProviderCredentialRequest;
use roadstead_proto::internal::Command;
use roadstead_proto::method::Method;
use roadstead_proto::subject;
use roadstead_testkit::eventually;
use tokio::task::JoinSet;
use tonic::Code;

use crate::outside::{Fate, Outside};
use crate::world::{LONG, Told, World, command, create_sandbox, fresh_id, principal, reason, root, scope};

const METHOD: Method = Method::RotateProviderCredential;
const UNCERTAIN: Option<&str> = Some("REQUEST_OUTCOME_UNCERTAIN");

/// Two replicas, and a provider `git` in the workspace `w`.
async fn world(flags: &[&str]) -> (World, Arc<Outside>) {
    let outside = Outside::new();
    let world = World::serving(outside.served(), 2, flags).await;
    world.workspace("w").await;
    (world, outside)
}

fn rotate(provider: &str, fate: Fate, request_id: &str) -> RotateProviderCredentialRequest {
    RotateProviderCredentialRequest {
        provider: provider.into(),
        credential_key: fate.key(),
        workspace_scope: scope("w"),
        request_id: request_id.into(),
    }
}

async fn call(world: &World, request: &RotateProviderCredentialRequest) -> Told {
    world.edge.user_call(&root(), METHOD, request).await
}

/// A command that its caller waits for only so long.
fn within(request: &RotateProviderCredentialRequest, time: Duration) -> Command {
    command(METHOD.name(), principal(&root()), request, time)
}

async fn send(world: &World, command: Command, patience: Duration) -> Told {
    world.edge.call_within(&subject::command(METHOD), command, patience).await
}

async fn quota(world: &mut World) -> u64 {
    world.sql.value("select coalesce(sum(used), 0) from roadstead.quota_slot").await.parse().unwrap()
}

async fn a_day_later(world: &mut World) {
    for table in ["claim", "command"] {
        let shift = format!("update roadstead.{table} set created_at = created_at - interval '25 hours'");
        world.sql.run(&shift).await;
    }
    world.sql.run("update roadstead.claim set completed_at = completed_at - interval '25 hours'").await;
    world
        .sql
        .run("update roadstead.effect set since = since - interval '25 hours', until = until - interval '25 hours'")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_effect_that_happened_is_completed_once_and_replayed() {
    let (mut world, outside) = world(&[]).await;
    for id in [fresh_id(), String::new()] {
        let name = format!("git-{}", id.len());
        world.provider("w", &name).await;
        let request = rotate(&name, Fate::Waits, &id);
        let sent = within(&request, Duration::from_secs(40));
        let (edge, again) = (world.edge.clone(), sent.clone());
        let first = tokio::spawn(async move { edge.call(&subject::command(METHOD), again).await });
        eventually(LONG, "it is begun", async || outside.effects(&name) == 1).await;
        // It is no transaction that waits, and what it was decided on may change.
        let open = "select count(*) from pg_stat_activity where state like 'idle in%' and datname = current_database()";
        assert_eq!(world.sql.value(open).await, "0");
        world.sql.run("update roadstead.provider set resource_version = resource_version + 5").await;
        assert_eq!(world.count("effect").await, 1);
        outside.gate.add_permits(1);
        assert!(!first.await.unwrap().unwrap().1);
        // The same command is answered from its row, and a duplicate by the receipt.
        send(&world, sent, LONG).await.unwrap();
        if !id.is_empty() {
            assert!(call(&world, &request).await.unwrap().1);
        }
        assert_eq!((outside.effects(&name), world.count("effect").await), (1, 0));
        let version = format!("select resource_version from roadstead.provider where name = '{name}'");
        assert_eq!(world.sql.value(&version).await, "7");
    }
    assert_eq!((quota(&mut world).await, world.count("claim where completed_at is not null").await), (1, 1));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_effect_that_did_not_happen_frees_the_request_id() {
    let (mut world, outside) = world(&[]).await;
    world.provider("w", "git").await;
    let request = rotate("git", Fate::DoesNothing, &fresh_id());
    let sent = within(&request, Duration::from_secs(40));
    for times in 1..=2 {
        assert_eq!(call(&world, &request).await.unwrap_err().code(), Code::Unavailable);
        assert_eq!((outside.effects("git"), quota(&mut world).await), (times, 0));
        assert_eq!((world.count("claim").await, world.count("effect").await), (0, 0));
    }
    // What one command was told it is told again.
    for _ in 0..2 {
        assert_eq!(send(&world, sent.clone(), LONG).await.unwrap_err().code(), Code::Unavailable);
    }
    assert_eq!(outside.effects("git"), 3);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_effect_whose_end_is_not_known_is_never_had_again() {
    let (mut world, outside) = world(&["--effect-seconds=1"]).await;
    let patience = Duration::from_secs(4);
    let mut calls = Vec::new();
    for fate in Fate::UNKNOWN {
        for id in [fresh_id(), String::new()] {
            let name = format!("{}-{}", fate.key().to_lowercase(), id.len());
            world.provider("w", &name).await;
            let request = rotate(&name, fate, &id);
            let sent = within(&request, patience);
            let (edge, again) = (world.edge.clone(), sent.clone());
            let told = tokio::spawn(async move { edge.call_within(&subject::command(METHOD), again, patience).await });
            calls.push((name, request, sent, told));
        }
    }
    let unresolved = calls.len() as u64;
    // Neither a success nor a refusal is told, before the deadline or after.
    let mut again = JoinSet::new();
    for (name, _, sent, told) in &mut calls {
        assert_eq!(told.await.unwrap().unwrap_err().code(), Code::Unknown, "{name}");
        let (edge, sent) = (world.edge.clone(), sent.clone());
        again.spawn(async move { edge.call_within(&subject::command(METHOD), sent, Duration::from_secs(1)).await });
    }
    for told in again.join_all().await {
        assert_eq!(told.unwrap_err().code(), Code::Unknown);
    }
    for round in 0..2 {
        let mut duplicates = JoinSet::new();
        for (_, request, ..) in calls.iter().filter(|(_, request, ..)| !request.request_id.is_empty()) {
            let (edge, request) = (world.edge.clone(), request.clone());
            duplicates.spawn(async move { edge.user_call(&root(), METHOD, &request).await });
        }
        for told in duplicates.join_all().await {
            assert_eq!(reason(&told.unwrap_err()), UNCERTAIN);
        }
        for (name, ..) in &calls {
            assert_eq!(outside.effects(name), 1, "{name} in round {round}");
        }
        assert_eq!(world.count("effect").await, unresolved);
        assert_eq!(world.count("command where outcome = 0").await, unresolved);
        assert_eq!(world.count("claim where completed_at is null").await, unresolved / 2);
        assert_eq!(quota(&mut world).await, unresolved / 2);
        // Time and retention change nothing.
        a_day_later(&mut world).await;
        world.sql.run("insert into roadstead.command (id, method, caller, deadline, created_at, outcome, settled_at) values (gen_random_uuid(), 'x', '', now(), now() - interval '1 day', 3, now() - interval '1 day')").await;
        while world.count("command where method = 'x'").await != 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_effect_whose_replica_died_is_not_had_by_another_one() {
    let (mut world, outside) = world(&[]).await;
    for id in [fresh_id(), String::new()] {
        let name = format!("git-{}", id.len());
        world.provider("w", &name).await;
        let request = rotate(&name, Fate::Waits, &id);
        let patience = Duration::from_secs(8);
        let (edge, sent) = (world.edge.clone(), within(&request, patience));
        let told = tokio::spawn(async move { edge.call_within(&subject::command(METHOD), sent, patience).await });
        eventually(LONG, "it is begun", async || outside.effects(&name) == 1).await;
        world.kill_all();
        outside.gate.add_permits(1);
        for _ in 0..2 {
            world.start_replica().await;
        }
        // It is delivered again, and sent again, until its deadline.
        assert_eq!(told.await.unwrap().unwrap_err().code(), Code::Unknown);
        if !id.is_empty() {
            assert_eq!(reason(&call(&world, &request).await.unwrap_err()), UNCERTAIN);
        }
        assert_eq!(outside.effects(&name), 1);
        outside.gate.forget_permits(1);
    }
    assert_eq!((world.count("effect").await, quota(&mut world).await), (2, 1));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_is_committed_when_the_database_comes_back() {
    let (mut world, outside) = world(&[]).await;
    world.provider("w", "git").await;
    let (edge, request) = (world.edge.clone(), rotate("git", Fate::Waits, &fresh_id()));
    let asked = request.clone();
    let told = tokio::spawn(async move { edge.user_call(&root(), METHOD, &asked).await });
    eventually(LONG, "it is begun", async || outside.effects("git") == 1).await;
    for replica in &world.replicas {
        replica.postgres.cut();
    }
    outside.gate.add_permits(1);
    // The same command, on whichever replica, meets the same outage.
    tokio::time::sleep(Duration::from_millis(500)).await;
    for replica in &world.replicas {
        replica.postgres.reset();
        replica.postgres.heal();
    }
    assert!(!told.await.unwrap().unwrap().1);
    assert!(call(&world, &request).await.unwrap().1);
    assert_eq!((outside.effects("git"), world.count("effect").await), (1, 0));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_begin_whose_reply_was_lost_goes_on_where_it_was_begun() {
    let (mut world, outside) = world(&[]).await;
    world.provider("w", "git").await;
    call(&world, &rotate("git", Fate::Succeeds, &fresh_id())).await.unwrap();
    // All of the flight is with Postgres, and waits for the last row before COMMIT.
    let mut holder = world.session().await;
    holder.hold("select * from roadstead.quota_slot for update").await;
    let (edge, request) = (world.edge.clone(), rotate("git", Fate::Succeeds, &fresh_id()));
    let asked = request.clone();
    let told = tokio::spawn(async move { edge.user_call(&root(), METHOD, &asked).await });
    let waiting =
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    while world.sql.value(waiting).await == "0" {
        tokio::task::yield_now().await;
    }
    for replica in &world.replicas {
        replica.postgres.lose_replies();
    }
    holder.release().await;
    while world.count("effect").await == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(outside.effects("git"), 1);
    for replica in &world.replicas {
        replica.postgres.reset();
        replica.postgres.heal();
    }
    assert!(!told.await.unwrap().unwrap().1);
    assert!(call(&world, &request).await.unwrap().1);
    assert_eq!((outside.effects("git"), world.count("effect").await), (2, 0));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn effects_that_hang_leave_slots_for_all_else() {
    let (mut world, outside) = world(&["--command-slots=2"]).await;
    world.provider("w", "git").await;
    let calls = (0..8).map(|_| {
        let (edge, request) = (world.edge.clone(), rotate("git", Fate::Waits, &fresh_id()));
        tokio::spawn(async move { edge.user_call(&root(), METHOD, &request).await })
    });
    let calls = calls.collect::<Vec<_>>();
    eventually(LONG, "one is at work on each replica", async || outside.effects("git") == 2).await;
    world.sandbox("w", "box").await;
    outside.gate.add_permits(8);
    for call in calls {
        assert!(!call.await.unwrap().unwrap().1);
    }
    assert_eq!((outside.effects("git"), world.count("effect").await), (8, 0));
    world.stop().await;
}

/// Asks for so many sandboxes at once, each under an id of its own: how many are made, the rest being over the quota.
async fn made_at_once(world: &World, named: &str, count: u64) -> u64 {
    let mut calls = JoinSet::new();
    for at in 0..count {
        let (edge, request) = (world.edge.clone(), create_sandbox("w", &format!("{named}-{at}"), &fresh_id()));
        calls.spawn(async move { edge.user_call(&root(), Method::CreateSandbox, &request).await });
    }
    let mut made = 0;
    for told in calls.join_all().await {
        match told {
            Ok(_) => made += 1,
            Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}"),
        }
    }
    made
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_cut_off_fills_a_quota_until_it_is_settled_and_successes_for_a_day() {
    let (mut world, outside) = world(&["--request-id-quota=8", "--command-slots=16"]).await;
    let patience = Duration::from_secs(3);
    let mut cut_off = JoinSet::new();
    for at in 0..4 {
        let name = format!("git-{at}");
        world.provider("w", &name).await;
        let (edge, sent) = (world.edge.clone(), within(&rotate(&name, Fate::Hangs, &fresh_id()), patience));
        cut_off.spawn(async move { edge.call_within(&subject::command(METHOD), sent, patience).await });
    }
    eventually(LONG, "all are begun", async || (0..4).all(|at| outside.effects(&format!("git-{at}")) == 1)).await;
    world.kill_all();
    for _ in 0..2 {
        world.start_replica().await;
    }
    for told in cut_off.join_all().await {
        assert_eq!(told.unwrap_err().code(), Code::Unknown);
    }
    let first = create_sandbox("w", "first", &fresh_id());
    world.edge.user_call(&root(), Method::CreateSandbox, &first).await.unwrap();
    assert_eq!(made_at_once(&world, "early", 9).await, 3);
    assert_eq!((world.count("sandbox").await, quota(&mut world).await), (4, 8));
    // At the limit, what is known is still told, and calls without an id are taken.
    assert!(world.edge.user_call(&root(), Method::CreateSandbox, &first).await.unwrap().1);
    world.sandbox("w", "without-an-id").await;

    a_day_later(&mut world).await;
    assert_eq!(made_at_once(&world, "late", 9).await, 4);
    assert_eq!((world.count("claim where completed_at is null").await, quota(&mut world).await), (4, 8));
    world.stop().await;
}
