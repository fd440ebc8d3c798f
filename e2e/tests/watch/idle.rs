//! W9: what watches cost while nothing happens to what they watch, and that none of them is open and mute.

use std::time::Duration;

use roadstead_e2e::api::{Client, client, request_id, scope};
use roadstead_e2e::{Toggle, toggle};
use roadstead_proto::api::v1::sandbox_stream_event::Payload;
use roadstead_proto::api::v1::{CreateSandboxRequest, CreateWorkspaceRequest, SandboxSpec, WatchSandboxRequest};
use roadstead_testkit::stack::{Plan, Role};
use roadstead_testkit::{Proxy, Stack, eventually, generate, soak};
use tokio::sync::watch;

/// Sandboxes that are watched; one more is not.
const WATCHED: usize = 10;
/// Streams at each edge, and how many of them lose their network.
const STREAMS: u32 = 150;
const ONE_IN: usize = 5;
/// Streams on one connection.
const ON_A_CONNECTION: usize = 50;
/// How long statements are counted while nothing happens: each replica of the watch role has looked after its buckets.
const LOOKED: Duration = Duration::from_secs(3);
/// Changes that concern nobody.
const UNRELATED: u32 = 30;
/// How long the network is away.
const CUT: Duration = Duration::from_secs(4);
/// When a stream whose network was away has ended, or shows what is new.
const BOUND: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(30);
const OPEN: &str = r#"roadstead_watches_open{role="edge"}"#;

/// An open stream.
struct Stream {
    /// Events so far, and the version in the last.
    shown: watch::Receiver<(u64, u64)>,
}

impl Stream {
    async fn open(mut client: Client, workspace: &str, sandbox: &str) -> Self {
        let request = WatchSandboxRequest {
            workspace_scope: scope(workspace),
            sandbox: sandbox.to_owned(),
            follow_status: true,
            ..Default::default()
        };
        let mut events = client.watch_sandbox(request).await.unwrap().into_inner();
        let (sender, mut shown) = watch::channel((0, 0));
        tokio::spawn(async move {
            while let Ok(Some(event)) = events.message().await {
                let Some(Payload::Sandbox(sandbox)) = event.payload else { panic!("a state: {event:?}") };
                let version = sandbox.metadata.unwrap().resource_version;
                sender.send_modify(|(count, last)| (*count, *last) = (*count + 1, version));
            }
        });
        let first = tokio::time::timeout(SOON, shown.wait_for(|(count, _)| *count > 0)).await;
        assert!(first.is_ok_and(|first| first.is_ok()), "the first event");
        Self { shown }
    }

    fn is_open(&self) -> bool {
        self.shown.has_changed().is_ok()
    }

    /// Waits until it has shown the version, or has ended; the events so far in the first case.
    async fn shows(&mut self, version: u64, within: Duration) -> Option<u64> {
        let shown = tokio::time::timeout(within, self.shown.wait_for(|(_, last)| *last >= version)).await;
        let shown = shown.map(|shown| shown.ok().map(|shown| shown.0));
        shown.unwrap_or_else(|_| panic!("open and mute: {:?}, not version {version}", *self.shown.borrow()))
    }
}

/// How often the watch role has asked the database.
fn statements(stack: &Stack) -> u64 {
    let nodes = stack.nodes().iter().filter(|node| node.role() == Role::Watch);
    nodes.filter_map(|node| node.postgres.as_ref()).map(Proxy::turns).sum()
}

/// What the watch role asks the database while nothing happens.
async fn idle(stack: &Stack) -> u64 {
    let before = statements(stack);
    tokio::time::sleep(soak::period(LOOKED)).await;
    statements(stack) - before
}

/// What the watch role asks the database while what nobody watches changes.
async fn elsewhere(stack: &Stack, unrelated: &mut Toggle) -> u64 {
    let before = statements(stack);
    for _ in 0..soak::count(UNRELATED) {
        unrelated.next().await;
    }
    statements(stack) - before
}

async fn furnish(edge: &str) -> String {
    let (mut api, workspace) = (client(edge), generate::unique("idle"));
    let request = CreateWorkspaceRequest { name: workspace.clone(), request_id: request_id(), ..Default::default() };
    api.create_workspace(request).await.unwrap();
    toggle::prepare(edge, &workspace).await;
    for name in (0..WATCHED).map(watched).chain(["unrelated".to_owned()]) {
        let request = CreateSandboxRequest {
            workspace_scope: scope(&workspace),
            name,
            spec: Some(SandboxSpec::default()),
            request_id: request_id(),
            ..Default::default()
        };
        api.create_sandbox(request).await.unwrap();
    }
    workspace
}

fn watched(number: usize) -> String {
    format!("watched-{number}")
}

/// Opens so many streams at one edge, each with the number of its sandbox.
async fn open(edge: &str, workspace: &str, count: usize) -> Vec<(usize, Stream)> {
    let mut streams = Vec::new();
    let mut connection = client(edge);
    for at in 0..count {
        if at % ON_A_CONNECTION == 0 {
            connection = client(edge);
        }
        let number = at % WATCHED;
        streams.push((number, Stream::open(connection.clone(), workspace, &watched(number)).await));
    }
    streams
}

/// Changes each of them once; their versions after that.
async fn change(toggles: &mut [Toggle]) -> Vec<u64> {
    let mut versions = Vec::new();
    for toggle in toggles {
        versions.push(toggle.next().await);
    }
    versions
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_watches_cost_the_database_nothing_wake_for_nobody_else_and_none_stays_open_and_mute() {
    let plan = Plan::single().replicas(Role::Edge, 2).replicas(Role::Watch, 2);
    let stack = Stack::start(plan).await;
    let workspace = furnish(&stack.edge(1)).await;
    let mut unrelated = Toggle::of(&stack.edge(1), &workspace, "unrelated");
    let (idle_alone, elsewhere_alone) = (idle(&stack).await, elsewhere(&stack, &mut unrelated).await);

    // Some go through networks that will be away.
    let (mut steady, mut cut, mut networks) = (Vec::new(), Vec::new(), Vec::new());
    let streams = soak::count(STREAMS) as usize;
    for edge in [stack.edge(1), stack.edge(2)] {
        let network = Proxy::before(edge.strip_prefix("http://").unwrap().parse().unwrap()).await;
        let through = format!("http://{}", network.address());
        networks.push(network);
        cut.extend(open(&through, &workspace, streams / ONE_IN).await);
        steady.extend(open(&edge, &workspace, streams - streams / ONE_IN).await);
    }

    let idle_watched = idle(&stack).await;
    assert!(idle_watched <= idle_alone + WATCHED as u64, "{idle_watched} statements, {idle_alone} without streams");
    let elsewhere_watched = elsewhere(&stack, &mut unrelated).await;
    let most = 2 * elsewhere_alone + WATCHED as u64;
    assert!(elsewhere_watched <= most, "{elsewhere_watched} statements, {elsewhere_alone} without streams");

    // The next event of each stream is about its own sandbox: it has not been woken for another one.
    let mut toggles: Vec<_> =
        (0..WATCHED).map(|number| Toggle::of(&stack.edge(1), &workspace, &watched(number))).collect();
    for network in &networks {
        network.cut();
    }
    let versions = change(&mut toggles).await;
    for (number, stream) in &mut steady {
        assert_eq!(stream.shows(versions[*number], SOON).await, Some(2), "events: the first state, and this one");
    }
    tokio::time::sleep(soak::period(CUT)).await;
    assert!(cut.iter().all(|(_, stream)| stream.shown.borrow().0 == 1), "the network was away");
    for network in &networks {
        network.heal();
    }
    let versions = change(&mut toggles).await;
    let mut ended = 0;
    for (number, stream) in steady.iter_mut().chain(&mut cut) {
        ended += u64::from(stream.shows(versions[*number], BOUND).await.is_none());
    }
    assert!(steady.iter().all(|(_, stream)| stream.is_open()));

    // And both sides agree on which are open.
    let open = (steady.len() + cut.len()) as u64 - ended;
    eventually(BOUND, "the edges hold what their clients hold, and no more", async || {
        let mut held = 0.0;
        for edge in [1, 2] {
            held += stack.node(Role::Edge, edge).metric(OPEN).await;
        }
        if held as u64 == open { Ok(()) } else { Err(format!("{held} streams, not {open}")) }
    })
    .await;
}
