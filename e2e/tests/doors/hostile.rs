//! E8: peers that flood a door, or do not read what they ask for, cost it a bounded amount and honest clients nothing.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prost::Message as _;
use roadstead_e2e::api::{Client, client, scope};
use roadstead_proto::api::v1::{GetSandboxRequest, ListSandboxesRequest, SandboxSpec};
use roadstead_testkit::http2::{self, Connection};
use roadstead_testkit::stack::{Plan, Role};
use roadstead_testkit::{eventually, soak};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::world::{CROWD, World, address};

const GET: &str = "/openshell.v1.OpenShell/GetSandbox";
const LIST: &str = "/openshell.v1.OpenShell/ListSandboxes";
const WATCH: &str = "/openshell.v1.OpenShell/WatchSandbox";

/// Sandboxes that fill a page, and the bytes that each has for it.
const SANDBOXES: u32 = 14;
const FILLING: usize = 240 * 1024;
/// Bytes of a whole page, at least.
const PAGE: u64 = 3 * 1024 * 1024;

const SLOW: u32 = 25;
/// Of those, how many ask at the same time: what is looked at is how they read.
const OPENING: usize = 4;
const WINDOWLESS: u32 = 100;
/// How long honest calls are measured, among the others and at another edge.
const MEASURED: Duration = Duration::from_secs(3);
/// What an attacker sends in one go …
const BURST: u32 = 2000;
/// … and after which pause it is there again: that makes 10,000 streams a second.
const AGAIN: Duration = Duration::from_millis(200);
/// How much the process may grow: what may wait for all peers together, and as much again for what is on its way and
/// for the allocator.
const GROWTH: u64 = 2 * 64 * 1024 * 1024;
/// Slack of a call for a loaded machine.
const NOISE: Duration = Duration::from_millis(100);

/// The time within which 99 of 100 calls of an honest client were answered that made one after the other for a while.
async fn p99(mut honest: Client, request: GetSandboxRequest) -> Duration {
    let (began, mut times) = (Instant::now(), Vec::new());
    while began.elapsed() < soak::period(MEASURED) {
        let called = Instant::now();
        honest.get_sandbox(request.clone()).await.unwrap();
        times.push(called.elapsed());
    }
    times.sort();
    times[times.len() * 99 / 100]
}

/// Breaks the rules on one connection after the other; counts how often it was told to go away.
async fn attack(door: SocketAddr, burst: Vec<u8>, goodbyes: Arc<AtomicU64>) {
    let burst = Arc::new(burst);
    loop {
        let Connection { mut sends, mut hears } = Connection::open(door, &[]).await;
        let burst = Arc::clone(&burst);
        let sending = tokio::spawn(async move { sends.bytes(&burst).await });
        if hears.until(http2::GO_AWAY).await.is_some() {
            goodbyes.fetch_add(1, Ordering::Relaxed);
        }
        sending.abort();
        tokio::time::sleep(AGAIN).await;
    }
}

/// Opens streams and resets them at once.
fn open_and_reset() -> Vec<u8> {
    let pairs = (0..BURST).flat_map(|number| {
        let stream = 2 * number + 1;
        let open = http2::frame(http2::HEADERS, http2::END_HEADERS, stream, &http2::head(GET, &[]));
        [open, http2::frame(http2::RESET, 0, stream, &8_u32.to_be_bytes())].concat()
    });
    pairs.collect()
}

/// A head that does not end.
fn continued() -> Vec<u8> {
    let more = http2::frame(http2::CONTINUATION, 0, 1, &http2::header("x-more", "of it"));
    [http2::frame(http2::HEADERS, 0, 1, &http2::head(GET, &[])), more.repeat(BURST as usize)].concat()
}

/// Windows that cannot be.
fn invalid_windows() -> Vec<u8> {
    http2::window_update(0, i32::MAX as u32).repeat(BURST as usize)
}

/// Asks for a page, if need be again, and reads a kilobyte of it a second, until the door gives it up.
async fn read_slowly(door: SocketAddr, list: Vec<u8>, opening: Arc<Semaphore>, opened: Arc<AtomicU64>) {
    let mut turn = Some(opening.acquire_owned().await.unwrap());
    let mut peer = Connection::open(door, &[(http2::INITIAL_WINDOW, 1000)]).await;
    let mut stream = 1;
    peer.sends.bytes(&http2::call(stream, LIST, &[], &list)).await.unwrap();
    while let Some(frame) = peer.next().await {
        match frame.kind {
            http2::HEADERS if frame.flags & http2::END_STREAM != 0 => {
                stream += 2;
                peer.sends.bytes(&http2::call(stream, LIST, &[], &list)).await.unwrap();
            }
            http2::DATA => {
                if turn.take().is_some() {
                    opened.fetch_add(1, Ordering::Relaxed);
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
                let more = [http2::window_update(stream, 1000), http2::window_update(0, 1000)].concat();
                if peer.sends.bytes(&more).await.is_err() {
                    return;
                }
            }
            http2::RESET => return,
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_and_slow_peers_cost_a_bounded_amount_and_honest_clients_nothing() {
    let world = World::start(Plan::single().replicas(Role::Edge, 2).replicas(Role::Watch, 2)).await;
    let filling: BTreeMap<_, _> =
        (0..FILLING / 8000).map(|number| (format!("FILLING_{number}"), "x".repeat(8000))).collect();
    for number in 0..SANDBOXES {
        let spec = SandboxSpec { environment: filling.clone(), ..Default::default() };
        world.sandbox(&format!("large-{number}"), spec).await;
    }
    world.sandbox("small", SandboxSpec::default()).await;
    let edge = world.stack.node(Role::Edge, 1);
    let door = address(edge);
    let get = GetSandboxRequest { workspace_scope: scope(&world.workspace), name: "small".to_owned() };
    let list = ListSandboxesRequest { workspace_scope: scope(&world.workspace), ..Default::default() }.encode_to_vec();
    let page = world.api().list_sandboxes(ListSandboxesRequest::decode(&list[..]).unwrap()).await;
    assert!(page.unwrap().into_inner().encoded_len() as u64 >= PAGE, "a full page is asked for");

    let memory = edge.victim().memory();

    // Watches that may never say anything, and readers of a kilobyte a second.
    let windowless = soak::count(WINDOWLESS).min(1000);
    let watching = world.watching("small").encode_to_vec();
    let mut stalled = Connection::open(door, &[(http2::INITIAL_WINDOW, 0)]).await;
    for number in 0..windowless {
        stalled.sends.bytes(&http2::call(2 * number + 1, WATCH, &[], &watching)).await.unwrap();
    }
    let open = "roadstead_watches_open{role=\"edge\"}";
    eventually(CROWD * 12, "the watches are open", || async { edge.metric(open).await as u32 >= windowless }).await;
    let mut peers = JoinSet::new();
    peers.spawn(async move { while stalled.next().await.is_some() {} });
    let (opening, opened) = (Arc::new(Semaphore::new(OPENING)), Arc::<AtomicU64>::default());
    let slow = soak::count(SLOW);
    for _ in 0..slow {
        peers.spawn(read_slowly(door, list.clone(), Arc::clone(&opening), Arc::clone(&opened)));
    }
    eventually(CROWD * slow, "the slow readers have begun to read", || async {
        opened.load(Ordering::Relaxed) == u64::from(slow)
    })
    .await;

    let goodbyes = [(); 3].map(|()| Arc::<AtomicU64>::default());
    let mut attackers = JoinSet::new();
    for (burst, goodbyes) in [open_and_reset(), continued(), invalid_windows()].into_iter().zip(&goodbyes) {
        attackers.spawn(attack(door, burst, Arc::clone(goodbyes)));
    }
    let [honest, elsewhere] = [1, 2].map(|edge| p99(client(&world.stack.edge(edge)), get.clone()));
    let (during, elsewhere) = tokio::join!(honest, elsewhere);
    let grown = edge.victim().memory().saturating_sub(memory);
    let told: Vec<_> = goodbyes.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    let given_up = edge.metric("roadstead_door_responses_given_up_total{role=\"edge\"}").await;
    let figures = format!(
        "p99 {during:?} among them and {elsewhere:?} elsewhere; {grown} bytes more; sent away {told:?}; {given_up} given up"
    );
    assert!(told.iter().all(|count| *count > 0), "those who break the rules are not sent away: {figures}");
    // What a loaded machine adds is felt elsewhere too.
    assert!(during < 2 * elsewhere + NOISE, "honest calls take longer: {figures}");
    assert!(grown < GROWTH, "the process grows: {figures}");
    assert!(given_up > 0.0, "pages wait without a bound: {figures}");
    attackers.shutdown().await;
    peers.shutdown().await;
    eventually(CROWD * 2, "nothing is left of them", || async { edge.metric(open).await == 0.0 }).await;
}
