//! A bridge dies for good while the broker is frozen: nothing tells of its end, and nobody asks.

use std::time::Duration;

use roadstead_e2e::Watched;
use roadstead_e2e::api::{client, request_id, scope};
use roadstead_e2e::watched::Seen;
use roadstead_proto::api::v1::{CreateSandboxRequest, CreateWorkspaceRequest, SandboxPhase, SandboxSpec};
use roadstead_supervisor::{Settings, Supervisor, TokenSource};
use roadstead_testkit::sql::Session;
use roadstead_testkit::stack::{Plan, Role};
use roadstead_testkit::{Stack, eventually, generate, soak};
use tokio::time::{Instant, sleep, timeout};

/// After what silence a bridge is gone, and how long who judges that must have been renewed itself.
const GONE: Duration = Duration::from_secs(20);
/// By when its sandboxes have left READY from then on.
const BOUND: Duration = Duration::from_secs(5);
/// What a busy machine may take on top.
const SLACK: Duration = Duration::from_secs(2);
/// A pause of renewals that begins a new life: over seven seconds.
const PAUSE: Duration = Duration::from_secs(8);
/// What is left of the time in which nobody is judged, in the short form.
const REST: Duration = Duration::from_secs(4);
const SOON: Duration = Duration::from_secs(20);
/// What a process may log over all this.
const LOGGED: u64 = 64 * 1024;

struct World {
    stack: Stack,
    workspace: String,
    token: TokenSource,
}

impl World {
    async fn start() -> Self {
        let stack = Stack::start(Plan::pairs()).await;
        let workspace = generate::unique("expiry");
        let mut api = client(&stack.edge(1));
        let request =
            CreateWorkspaceRequest { name: workspace.clone(), request_id: request_id(), ..Default::default() };
        api.create_workspace(request).await.unwrap();
        let request = CreateSandboxRequest {
            workspace_scope: scope(&workspace),
            name: "left".to_owned(),
            spec: Some(SandboxSpec::default()),
            request_id: request_id(),
            ..Default::default()
        };
        api.create_sandbox(request).await.unwrap();
        let token = TokenSource::File(stack.token(&workspace, "left").await);
        Self { stack, workspace, token }
    }

    fn supervise(&self, bridge: usize) -> Supervisor {
        let settings = Settings::new(self.stack.bridge(bridge), &self.workspace, "left", self.token.clone());
        Supervisor::start(settings).unwrap()
    }

    fn logged(&self) -> Vec<u64> {
        let size = |node: &roadstead_testkit::stack::Node| {
            let log = format!("{}-{}.log", node.role().name(), node.number());
            std::fs::metadata(self.stack.folder().join(log)).unwrap().len()
        };
        self.stack.nodes().iter().map(size).collect()
    }
}

/// Session and bridge of the sandbox.
async fn owner(session: &mut Session) -> [bool; 2] {
    let row = session
        .run("select session_id is not null, session_bridge_id is not null from roadstead.sandbox where name = 'left'")
        .await;
    [row[0][0] == "t", row[0][1] == "t"]
}

/// How long the admission that has judged others longest has done so, in seconds, if one is renewed.
async fn judging(session: &mut Session) -> f64 {
    let age = "select coalesce(max(extract(epoch from clock_timestamp() - since)), 0) from roadstead.process
        where kind = 2 and renewed_at > clock_timestamp() - interval '7 seconds'";
    session.value(age).await.parse().unwrap()
}

/// Moves times of processes of a kind into the past: what a soak waits for.
async fn shift(session: &mut Session, kind: u8, column: &str, by: Duration) {
    let by = format!("interval '{} milliseconds'", by.as_millis());
    session.run(&format!("update roadstead.process set {column} = {column} - {by} where kind = {kind}")).await;
}

async fn round(world: &mut World) {
    let mut session = world.stack.session().await;
    let supervisor = world.supervise(1);
    let edges = [1, 2].map(|number| world.stack.edge(number));
    let watches = [0, 1].map(|edge| Watched::open(&edges[edge..=edge], &world.workspace, "left"));
    for watch in &watches {
        watch.until(SOON, "READY", |seen| seen.current().is_some_and(|(_, phase)| phase == SandboxPhase::Ready)).await;
    }
    // Who may judge by now would do so if the freeze were not.
    eventually(GONE + SOON, "an admission may judge", async || {
        judging(&mut world.stack.session().await).await > GONE.as_secs_f64() || soak::factor() == 1
    })
    .await;
    let logged = world.logged();

    world.stack.broker().victim().freeze();
    world.stack.node_mut(Role::SupervisorBridge, 1).kill().await;
    supervisor.kill();
    if soak::factor() == 1 {
        sleep(PAUSE).await;
        shift(&mut session, 1, "renewed_at", GONE).await;
    } else {
        sleep(GONE + PAUSE).await;
    }
    // The bridge has been silent for longer than it may be, and so has everybody else.
    assert_eq!(owner(&mut session).await, [true; 2], "it was judged by somebody who could hear nobody");
    world.stack.broker().victim().thaw();
    for role in [Role::ConfigSnapshot, Role::Watch] {
        for number in [1, 2] {
            world.stack.node_mut(role, number).crash().await;
        }
    }
    world.stack.node_mut(Role::Admission, 1).crash().await;

    // From here on nobody calls; only the rows are looked at, from the side.
    eventually(SOON, "an admission is renewed", async || judging(&mut world.stack.session().await).await > 0.0).await;
    if soak::factor() == 1 {
        let aged = Duration::from_secs_f64(judging(&mut session).await);
        shift(&mut session, 2, "since", (GONE - REST).saturating_sub(aged)).await;
    }
    let judged_by =
        Instant::now() + Duration::from_secs_f64((GONE.as_secs_f64() - judging(&mut session).await).max(0.0));
    assert_eq!(owner(&mut session).await, [true; 2], "it was judged too early");
    for watch in &watches {
        let within = judged_by.duration_since(Instant::now()) + BOUND + SLACK;
        let left = |seen: &Seen| seen.current().is_some_and(|(_, phase)| phase != SandboxPhase::Ready);
        let seen = watch.until(within, "that it is READY no more", left).await;
        assert_eq!(seen.breaks(), 0, "the stream stayed open: {seen:?}");
    }
    assert_eq!(owner(&mut session).await, [false; 2]);

    let supervisor = world.supervise(2);
    let mut status = supervisor.status();
    let open = timeout(BOUND, status.wait_for(|status| status.connection.is_some())).await.is_ok();
    assert!(open, "a new session is not accepted: {:?}", supervisor.status().borrow());
    assert_eq!(owner(&mut session).await, [true; 2]);
    for watch in &watches {
        watch.until(SOON, "READY", |seen| seen.current().is_some_and(|(_, phase)| phase == SandboxPhase::Ready)).await;
    }
    for (node, (before, after)) in world.stack.nodes().iter().zip(logged.iter().zip(world.logged())) {
        // A log is begun anew with its process.
        let logged = after.saturating_sub(*before);
        assert!(logged <= LOGGED, "{:?} {} has logged {logged} bytes", node.role(), node.number());
    }
    supervisor.stop().await;
    world.stack.node_mut(Role::SupervisorBridge, 1).resume();
    world.stack.node_mut(Role::SupervisorBridge, 1).ready().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_whose_bridge_dies_unheard_leaves_ready_on_every_watch_in_time_though_nobody_asks() {
    let mut world = World::start().await;
    round(&mut world).await;
    // The times in full, and again.
    for _ in 1..soak::factor().min(10) {
        round(&mut world).await;
    }
}
