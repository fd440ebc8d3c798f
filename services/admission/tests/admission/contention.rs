//! Many at once, for the same rows and for few connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use prost::Message as _;
use roadstead_proto::api::datamodel::{ObjectMeta, Provider};
use roadstead_proto::api::v1;
use roadstead_proto::method::Method;
use roadstead_testkit::soak;
use tokio::task::JoinSet;
use tonic::Code;

use crate::world::{LONG, World, create_sandbox, fresh_id, root, scope};

/// Postgres ends a transaction that its client leaves alone for 4 s.
const LONGEST_IDLE: f64 = 5.0;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_few_connections_many_mutations_finish_and_none_leaves_a_transaction_open() {
    // More slots than connections, so that most wait for one.
    let mut world = World::with(2, &["--database-connections=4", "--command-slots=64"]).await;
    world.workspace("w").await;
    let done = Arc::new(AtomicBool::new(false));
    let (mut side, over) = (world.session().await, Arc::clone(&done));
    let watching = tokio::spawn(async move {
        let look = "select count(*), coalesce(max(extract(epoch from clock_timestamp() - state_change)) filter (
                where state like 'idle in transaction%'), 0)
            from pg_stat_activity where datname = current_database() and usename = 'roadstead_admission'";
        let (mut most, mut longest) = (0, 0.0);
        while !over.load(Ordering::Relaxed) {
            let row = side.run(look).await.remove(0);
            most = most.max(row[0].parse::<u32>().unwrap());
            longest = f64::max(longest, row[1].parse().unwrap());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        (most, longest)
    });
    let mutations = soak::count(200);
    let mut calls = JoinSet::new();
    for at in 0..mutations {
        let id = if at % 2 == 0 { fresh_id() } else { String::new() };
        let (edge, request) = (world.edge.clone(), create_sandbox("w", &format!("box-{at}"), &id));
        calls.spawn(async move { edge.user_call(&root(), Method::CreateSandbox, &request).await });
    }
    for told in calls.join_all().await {
        told.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    let (most, longest) = watching.await.unwrap();
    assert!(most <= 2 * 4, "{most} connections");
    assert!(longest < LONGEST_IDLE, "a session was idle in its transaction for {longest} s");
    assert_eq!(world.count("sandbox").await, u64::from(mutations));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_freezes_amid_a_mutation_holds_up_no_other_workspace_and_its_own_ends_well() {
    // One slot each: who is frozen has no credit left that commands could be lost to for a while.
    let mut world = World::with(1, &["--command-slots=1"]).await;
    for name in ["w1", "w2"] {
        world.workspace(name).await;
    }
    let processes = "select id from roadstead.process where kind = 2 order by since";
    let first = known(&mut world, processes, 1).await.remove(0);
    world.start_replica().await;
    known(&mut world, processes, 2).await;

    let mut holder = world.session().await;
    holder.hold("select * from roadstead.workspace where name = 'w1' for update").await;
    let (edge, request) = (world.edge.clone(), create_sandbox("w1", "box", &fresh_id()));
    let asked = request.clone();
    let call = tokio::spawn(async move { edge.user_call(&root(), Method::CreateSandbox, &asked).await });
    let waiting = "select application_name from pg_stat_activity
        where wait_event_type = 'Lock' and datname = current_database()";
    let who = known(&mut world, waiting, 1).await.remove(0);
    let frozen = &world.replicas[usize::from(!who.ends_with(&first))];
    frozen.postgres.cut();
    frozen.nats.cut();
    // It gets every lock it wants, and cannot go on.
    holder.release().await;

    for at in 0..5 {
        let begun = Instant::now();
        let request = create_sandbox("w2", &format!("box-{at}"), &fresh_id());
        world.edge.user_call(&root(), Method::CreateSandbox, &request).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }
    let row = "select * from roadstead.workspace where name = 'w1' for update nowait";
    let held = world.sql.try_run(row).await.unwrap_err();
    assert_eq!(held.state, "55P03", "it was not frozen with its locks all the time: {held}");

    call.await.unwrap().unwrap();
    for replica in &world.replicas {
        replica.postgres.heal();
        replica.nats.heal();
    }
    assert!(world.edge.user_call(&root(), Method::CreateSandbox, &request).await.unwrap().1);
    assert_eq!(world.count("sandbox where workspace_name = 'w1'").await, 1);
    assert_eq!(world.count("sandbox where workspace_name = 'w2'").await, 5);
    world.stop().await;
}

/// Waits until a query has that many rows, and returns their first columns.
async fn known(world: &mut World, sql: &str, rows: usize) -> Vec<String> {
    let begun = Instant::now();
    loop {
        let found = world.sql.run(sql).await;
        if found.len() == rows {
            return found.into_iter().map(|mut row| row.remove(0)).collect();
        }
        assert!(begun.elapsed() < LONG, "{sql}: {found:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn provider(name: &str, value: &str) -> Provider {
    Provider {
        metadata: Some(ObjectMeta { name: name.into(), ..Default::default() }),
        r#type: "generic".into(),
        credentials: [(format!("{}_TOKEN", name.to_uppercase()), value.to_owned())].into(),
        ..Default::default()
    }
}

/// A change of what is attached, with its request id.
#[derive(Clone, Debug)]
enum Change {
    Attach(v1::AttachSandboxProviderRequest),
    Detach(v1::DetachSandboxProviderRequest),
}

impl Change {
    fn attach(sandbox: &str, provider: &str) -> Self {
        Self::Attach(v1::AttachSandboxProviderRequest {
            workspace_scope: scope("w"),
            sandbox: sandbox.into(),
            provider: provider.into(),
            request_id: fresh_id(),
            ..Default::default()
        })
    }

    fn detach(sandbox: &str, provider: &str) -> Self {
        Self::Detach(v1::DetachSandboxProviderRequest {
            workspace_scope: scope("w"),
            sandbox: sandbox.into(),
            provider: provider.into(),
            request_id: fresh_id(),
            ..Default::default()
        })
    }

    /// Sends it; whether something was changed, and whether that was said before.
    async fn send(&self, world: &crate::world::DoorOf) -> (bool, bool) {
        match self {
            Self::Attach(request) => {
                let told = world.user_call(&root(), Method::AttachSandboxProvider, request).await;
                let (body, replayed) = told.unwrap();
                (v1::AttachSandboxProviderResponse::decode(body).unwrap().attached, replayed)
            }
            Self::Detach(request) => {
                let told = world.user_call(&root(), Method::DetachSandboxProvider, request).await;
                let (body, replayed) = told.unwrap();
                (v1::DetachSandboxProviderResponse::decode(body).unwrap().detached, replayed)
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pairs_of_opposite_order_never_fail_and_each_runs_once() {
    let mut world = World::with(2, &[]).await;
    world.workspace("w").await;
    for name in ["one", "two"] {
        world.sandbox("w", name).await;
        let request = v1::CreateProviderRequest {
            provider: Some(provider(name, "x")),
            workspace_scope: scope("w"),
            ..Default::default()
        };
        world.edge.user_call(&root(), Method::CreateProvider, &request).await.unwrap();
    }
    let mut pairs = JoinSet::new();
    for at in 0..soak::count(15) {
        let order = if at % 2 == 0 { ["one", "two"] } else { ["two", "one"] };
        let edge = world.edge.clone();
        pairs.spawn(async move {
            let [first, second] = order;
            let changes = [
                Change::attach(first, second),
                Change::attach(second, first),
                Change::detach(first, second),
                Change::detach(second, first),
            ];
            let mut changed = 0_u64;
            for change in &changes {
                // A provider's update locks the provider, then every sandbox that has it.
                let request = v1::UpdateProviderRequest {
                    provider: Some(provider(second, &fresh_id())),
                    workspace_scope: scope("w"),
                    ..Default::default()
                };
                let root = root();
                let update = edge.user_call(&root, Method::UpdateProvider, &request);
                let (sent, updated) = tokio::join!(change.send(&edge), update);
                updated.unwrap();
                changed += u64::from(sent.0);
                assert!(!sent.1);
                // Sent again it is a replay and says the same.
                assert_eq!(change.send(&edge).await, (sent.0, true), "{change:?}");
            }
            changed
        });
    }
    let changed: u64 = pairs.join_all().await.into_iter().sum();
    assert!(changed > 0);
    let versions = world.sql.value("select sum(resource_version - 1) from roadstead.sandbox").await;
    assert_eq!(versions, changed.to_string());
    let updates = world.sql.value("select sum(resource_version - 1) from roadstead.provider").await;
    assert_eq!(updates, (4 * soak::count(15)).to_string());
    assert_eq!(
        world.count(&format!("command where outcome = 3 and method <> '{}'", Method::StopSandbox.name())).await,
        0
    );
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    assert_eq!(world.sql.value(deadlocks).await, "0");
    world.stop().await;
}

/// Members are what a workspace may own very many of, and what goes with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_with_thousands_of_members_goes_at_once_with_all_of_them() {
    let mut world = World::with(2, &["--members-per-workspace=100000"]).await;
    for name in ["w", "other"] {
        world.workspace(name).await;
        let members = format!(
            "insert into roadstead.member (id, workspace_id, workspace_name, subject, role)
             select gen_random_uuid(), id, name, 'user-' || n, 2
             from roadstead.workspace, generate_series(1, {}) n where name = '{name}'",
            soak::count(2500)
        );
        world.sql.run(&members).await;
    }
    let delete = v1::DeleteWorkspaceRequest { name: "w".into(), request_id: fresh_id(), ..Default::default() };
    let begun = Instant::now();
    world.edge.user_call(&root(), Method::DeleteWorkspace, &delete).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(world.count("member where workspace_name = 'w'").await, 0);
    assert_eq!(world.count("member where workspace_name = 'other'").await, u64::from(soak::count(2500)));
    world.quiet().await;
    let user = crate::world::user_named("user-7", false);
    let denied = world.edge.user_call(&user, Method::CreateSandbox, &create_sandbox("w", "box", "")).await;
    assert_eq!(denied.unwrap_err().code(), Code::PermissionDenied);
    world.stop().await;
}
