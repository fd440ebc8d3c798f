//! The projection is lost and rolled back, and its writers die, while streams are open and changes go on.

use std::time::Duration;

use prost::Message as _;
use roadstead_bus::bucket::Bucket;
use roadstead_e2e::api::{client, request_id, scope};
use roadstead_e2e::connection::connect_as;
use roadstead_e2e::{Fleet, Watched};
use roadstead_proto::api::v1::{
    AddWorkspaceMemberRequest, CreateSandboxRequest, CreateWorkspaceRequest, SandboxSpec, WorkspaceRole,
};
use roadstead_proto::bucket::{Bucket as Name, SandboxKey};
use roadstead_proto::internal::SandboxEntry;
use roadstead_proto::role::Role as KeysOf;
use roadstead_service_kit::whole_file::{self, Existing};
use roadstead_testkit::stack::{Plan, Role};
use roadstead_testkit::{Stack, eventually, generate};
use serde_json::json;
use tokio::sync::watch;
use tonic::metadata::MetadataMap;
use uuid::Uuid;

/// Longest wait for what has no bound of its own.
const SOON: Duration = Duration::from_secs(30);
/// Within which everything is right again.
const HEALED: Duration = Duration::from_secs(10);
/// Sandboxes that change all the time.
const BUSY: usize = 3;
/// From one change to the next.
const PACE: Duration = Duration::from_millis(10);
/// An edge takes a feed for silent after that.
const SILENT: f64 = 3.0;
/// A member of the workspace, whose rights are asked for again whenever an edge may have missed a change of them.
const MEMBER: &str = "member";
const TOKEN: &str = "token-of-the-member-0123456789";

/// Makes a sandbox.
async fn create(stack: &Stack, workspace: &str, name: &str) {
    let create = CreateSandboxRequest {
        workspace_scope: scope(workspace),
        name: name.to_owned(),
        spec: Some(SandboxSpec::default()),
        request_id: request_id(),
        ..Default::default()
    };
    client(&stack.edge(1)).create_sandbox(create).await.unwrap();
}

/// The workspace's sandboxes: workspace id, id, name, version.
async fn rows(stack: &Stack, workspace: &str) -> Vec<(Uuid, Uuid, String, u64)> {
    let sql = format!(
        "select workspace_id, id, name, resource_version from roadstead.sandbox where workspace_name = '{workspace}'"
    );
    let rows = stack.session().await.run(&sql).await;
    let row =
        |row: Vec<String>| (row[0].parse().unwrap(), row[1].parse().unwrap(), row[2].clone(), row[3].parse().unwrap());
    rows.into_iter().map(row).collect()
}

/// Changes one sandbox.
fn change(workspace: &str, name: &str) -> String {
    format!(
        "update roadstead.sandbox set resource_version = resource_version + 1
        where workspace_name = '{workspace}' and name = '{name}'"
    )
}

/// Waits until each entry of the projection shows what Postgres has now.
async fn is_rebuilt(stack: &mut Stack, workspace: &str) {
    let bucket = Bucket::new(&connect_as(stack, KeysOf::Watch).await, Name::Sandboxes);
    for (workspace_id, sandbox_id, name, version) in rows(stack, workspace).await {
        let key = SandboxKey::Sandbox { workspace_id, sandbox_id }.to_string();
        eventually(HEALED, &format!("the projection shows the state of {name}"), async || {
            let entry = bucket.read_from_leader(&key).await.map_err(|error| error.to_string())?;
            let entry = entry.value.map(|value| SandboxEntry::decode(value).unwrap());
            match entry {
                Some(entry) if entry.version >= version => Ok(()),
                other => Err(format!("{version} is the state, {:?} is shown", other.map(|entry| entry.version))),
            }
        })
        .await;
    }
}

/// How long ago an edge heard of the watch role on the feed of a bucket.
async fn heartbeat_age(stack: &Stack, edge: usize, bucket: &str) -> f64 {
    let series = format!("roadstead_feed_heartbeat_age_seconds{{role=\"edge\",bucket=\"{bucket}\"}}");
    let text = stack.node(Role::Edge, edge).metrics().await;
    assert!(text.contains(&series), "{text}");
    stack.node(Role::Edge, edge).metric(&series).await
}

async fn until_heartbeats(stack: &Stack, what: &str, is_so: impl Fn(f64) -> bool) {
    for (edge, bucket) in [(1, "sandboxes"), (1, "rights"), (2, "sandboxes"), (2, "rights")] {
        eventually(SOON, &format!("the age of heartbeats on {bucket} at edge {edge} is {what}"), async || {
            let age = heartbeat_age(stack, edge, bucket).await;
            if is_so(age) { Ok(()) } else { Err(age.to_string()) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_projection_that_is_lost_or_rolled_back_is_rebuilt_and_no_stream_ends_or_goes_back() {
    let tokens = tempfile::tempdir().unwrap();
    let file = tokens.path().join("tokens.json");
    let text = json!({"tokens": [{"token": TOKEN, "subject": MEMBER}]}).to_string();
    whole_file::write(&file, text.as_bytes(), 0o600, Existing::Replace).unwrap();
    let plan = Plan::pairs()
        .flag(Role::Edge, format!("--tokens={}", file.display()))
        .flag(Role::Edge, "--allow-unauthenticated-users=loopback");
    let mut stack = Stack::start(plan).await;
    let workspace = generate::unique("kept");
    let request = CreateWorkspaceRequest { name: workspace.clone(), request_id: request_id(), ..Default::default() };
    client(&stack.edge(1)).create_workspace(request).await.unwrap();
    let add = AddWorkspaceMemberRequest {
        workspace_scope: scope(&workspace),
        principal_subject: MEMBER.to_owned(),
        role: WorkspaceRole::User.into(),
        request_id: request_id(),
    };
    client(&stack.edge(1)).add_workspace_member(add).await.unwrap();
    let busy = (0..BUSY).map(|number| format!("busy-{number}")).collect::<Vec<_>>();
    let names = busy.iter().cloned().chain(["quiet".to_owned()]).collect::<Vec<_>>();
    let mut edges = Fleet::edges(&stack);
    let mut member = MetadataMap::new();
    member.insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
    // Those of the platform's administrator, and those of the member.
    let (mut watches, mut of_member) = (Vec::new(), Vec::new());
    for name in &names {
        create(&stack, &workspace, name).await;
        for _ in 0..edges.len() {
            watches.push((name.clone(), Watched::open(&edges, &workspace, name)));
            of_member.push((name.clone(), Watched::open_with(&edges, &workspace, name, &member)));
            edges.rotate_left(1);
        }
    }
    let all = || watches.iter().chain(&of_member);
    for (name, watched) in all() {
        watched.until(SOON, &format!("{name} at first"), |seen| seen.current().is_some()).await;
    }

    let (stop, stopping) = watch::channel(false);
    let mut session = stack.session().await;
    let changes = {
        let (workspace, busy) = (workspace.clone(), busy.clone());
        tokio::spawn(async move {
            for name in busy.iter().cycle() {
                if *stopping.borrow() {
                    return;
                }
                session.run(&change(&workspace, name)).await;
                tokio::time::sleep(PACE).await;
            }
        })
    };
    // Every stream shows something newer than it has so far.
    let progress = async || {
        for (name, watched) in all().filter(|(name, _)| name != "quiet") {
            let before = watched.seen().current().map(|(version, _)| version);
            watched
                .until(HEALED, &format!("{name} beyond {before:?}"), |seen| seen.current().map(|(v, _)| v) > before)
                .await;
        }
    };

    let saved = stack.folder().join("saved");
    stack.broker().save(&saved).await;
    progress().await;
    // Shown before the way back, and never touched after it.
    let mut side = stack.session().await;
    side.run(&change(&workspace, "quiet")).await;
    is_rebuilt(&mut stack, &workspace).await;
    stack.node_mut(Role::Watch, 1).kill().await;
    progress().await;
    stack.broker().roll_back(&saved).await;
    progress().await;
    is_rebuilt(&mut stack, &workspace).await;
    stack.node_mut(Role::Watch, 1).resume();
    stack.node_mut(Role::Watch, 1).ready().await;
    stack.node_mut(Role::Watch, 2).kill().await;
    progress().await;
    stack.broker().wipe().await;
    progress().await;
    is_rebuilt(&mut stack, &workspace).await;
    until_heartbeats(&stack, "small", |age| age < SILENT).await;

    for (name, watched) in all() {
        assert_eq!(watched.seen().streams.len(), 1, "no stream of {name} has ended: {:?}", watched.seen());
    }

    // Nobody is left to tell of changes, and that shows. Nobody can say either what the member may do.
    stack.node_mut(Role::Watch, 1).kill().await;
    until_heartbeats(&stack, "large", |age| age > SILENT).await;
    for number in [1, 2] {
        stack.node_mut(Role::Watch, number).resume();
    }
    progress().await;
    until_heartbeats(&stack, "small", |age| age < SILENT).await;

    stop.send_replace(true);
    changes.await.unwrap();
    let rows = rows(&stack, &workspace).await;
    for (name, watched) in all() {
        let last = rows.iter().find(|row| row.2 == *name).unwrap().3;
        let is_last = |seen: &roadstead_e2e::watched::Seen| seen.current().is_some_and(|(version, _)| version == last);
        let seen = watched.until(HEALED, &format!("{name} at {last}"), is_last).await;
        assert_eq!(seen.disorder(), None, "{name}");
    }
    for (name, watched) in &watches {
        let seen = watched.seen();
        assert_eq!(seen.streams.len(), 1, "no stream of {name} has ended: {seen:?}");
    }
}
