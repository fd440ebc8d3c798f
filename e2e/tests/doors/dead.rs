//! E6: peers that vanish without a word are gone soon, with all that was held for them.

use std::time::Duration;

use roadstead_e2e::Watched;
use roadstead_e2e::api::client;
use roadstead_proto::api::v1::{SandboxPhase, SandboxSpec};
use roadstead_supervisor::{Settings, Supervisor, TokenSource};
use roadstead_testkit::http2::Connection;
use roadstead_testkit::proxy::Direction;
use roadstead_testkit::stack::{Node, Plan, Role};
use roadstead_testkit::{Proxy, eventually, soak};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::world::{CROWD, World, address};

/// Of the documentation: silence until a peer is asked, and the time it has to answer.
const INTERVAL: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_secs(20);

const WATCHES: u32 = 50;
const SESSIONS: u32 = 4;
const IDLE: u32 = 10;
/// Watches on one connection.
const SHARED: usize = 10;

const FAR: Duration = Duration::from_millis(400);
/// What a lost packet costs on a path of that length: it is sent again after a while, and what follows waits.
const LOST: Duration = Duration::from_millis(2000);

/// What a door holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Holds {
    connections: u64,
    streams: u64,
    tasks: u64,
    descriptors: usize,
}

impl Holds {
    async fn of(node: &Node, streams: &str) -> Self {
        let (role, metrics) = (node.role().name(), node.metrics().await);
        let of = |name: &str| {
            let series = format!("roadstead_{name}{{role=\"{role}\"}} ");
            metrics.lines().find_map(|line| line.strip_prefix(&series)).map_or(0, |value| value.parse().unwrap())
        };
        Self {
            connections: of("door_connections"),
            streams: of(streams),
            tasks: of("tasks"),
            descriptors: node.victim().descriptors(),
        }
    }

    /// Whether nothing is left beside what was there `before`.
    fn is_back_at(self, before: Self) -> Result<(), String> {
        let back = self.connections == before.connections
            && self.streams == before.streams
            && self.tasks <= before.tasks
            && self.descriptors <= before.descriptors;
        if back { Ok(()) } else { Err(format!("{self:?}, and before {before:?}")) }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_that_vanish_are_gone_in_time_with_all_that_was_held_for_them_and_far_ones_stay() {
    let plan = [Role::Edge, Role::SupervisorBridge, Role::Watch]
        .into_iter()
        .fold(Plan::single(), |plan, role| plan.replicas(role, 2));
    let world = World::start(plan).await;
    let (edge, bridge) = (world.stack.node(Role::Edge, 1), world.stack.node(Role::SupervisorBridge, 1));
    let mut doomed = Vec::new();
    for number in 0..soak::count(SESSIONS) {
        let name = format!("doomed-{number}");
        doomed.push((world.sandbox(&name, SandboxSpec::default()).await, name));
    }
    world.sandbox("far", SandboxSpec::default()).await;

    // Clients that live, far away.
    let [far_edge, far_bridge] = [Proxy::before(address(edge)).await, Proxy::before(address(bridge)).await];
    for proxy in [&far_edge, &far_bridge] {
        proxy.slow(Direction::ToServer, FAR);
        proxy.slow(Direction::ToClient, FAR);
    }
    let token = TokenSource::File(world.stack.token(&world.workspace, "far").await);
    let url = |proxy: &Proxy| format!("http://{}", proxy.address());
    let supervisor = Supervisor::start(Settings::new(url(&far_bridge), &world.workspace, "far", token)).unwrap();
    let watched = Watched::open(&[url(&far_edge)], &world.workspace, "far");
    watched.until(SOON, "READY", |seen| seen.has_shown(SandboxPhase::Ready)).await;

    let before = [Holds::of(edge, "watches_open").await, Holds::of(bridge, "sessions_held").await];
    let [to_edge, to_bridge] = [Proxy::before(address(edge)).await, Proxy::before(address(bridge)).await];
    let (watches, idle) = (soak::count(WATCHES) as usize, soak::count(IDLE));
    let mut held = Vec::new();
    for number in 0..watches.div_ceil(SHARED) {
        let mut shared = client(&url(&to_edge));
        for _ in 0..SHARED.min(watches - number * SHARED) {
            let watching = world.watching(&doomed[number % doomed.len()].1);
            held.push(shared.watch_sandbox(watching).await.unwrap().into_inner());
        }
    }
    let mut sessions = Vec::new();
    for (id, name) in &doomed {
        sessions.push(world.session(&url(&to_bridge), name, id).await);
    }
    let (mut connected, mut silent) = (Vec::new(), Vec::new());
    for proxy in [&to_edge, &to_bridge] {
        for _ in 0..idle {
            connected.push(Connection::open(proxy.address(), &[]).await);
            silent.push(TcpStream::connect(proxy.address()).await.unwrap());
        }
    }
    eventually(SOON, "all is open", || async {
        let [edge, bridge] = [Holds::of(edge, "watches_open").await, Holds::of(bridge, "sessions_held").await];
        let open = edge.streams == before[0].streams + watches as u64
            && bridge.streams == before[1].streams + sessions.len() as u64
            && edge.connections >= before[0].connections + watches.div_ceil(SHARED) as u64 + u64::from(idle);
        if open { Ok(()) } else { Err(format!("{edge:?}, {bridge:?}")) }
    })
    .await;

    let cut = Instant::now();
    to_edge.cut();
    to_bridge.cut();
    // Meanwhile packets to and from those who live are lost, one now and then.
    let losses = async {
        loop {
            for (proxy, direction) in
                [(&far_edge, Direction::ToClient), (&far_bridge, Direction::ToServer)].iter().cycle().take(4)
            {
                proxy.slow(*direction, LOST);
                tokio::time::sleep(Duration::from_millis(50)).await;
                proxy.slow(*direction, FAR);
                tokio::time::sleep(LOST).await;
            }
        }
    };
    let gone = async {
        let within = INTERVAL + TIMEOUT + CROWD;
        for (node, streams, before) in [(edge, "watches_open", before[0]), (bridge, "sessions_held", before[1])] {
            let left = within.saturating_sub(cut.elapsed());
            eventually(left, "nothing is left of those who vanished", || async {
                Holds::of(node, streams).await.is_back_at(before)
            })
            .await;
        }
    };
    tokio::select! {
        () = gone => {}
        () = losses => unreachable!("losses have no end"),
    }

    let (seen, status) = (watched.seen(), supervisor.status().borrow().clone());
    assert_eq!((seen.breaks(), status.sessions), (0, 1), "those who live were cut: {seen:?}, {status:?}");
    drop((held, sessions, connected, silent));
}
