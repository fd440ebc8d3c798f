//! N2: connections that come and go leave nothing behind on the broker, and neither do reads and watches.

use std::collections::BTreeMap;
use std::time::Duration;

use roadstead_e2e::Fleet;
use roadstead_e2e::api::{Client, client, scope};
use roadstead_proto::api::sandbox::GetSandboxConfigRequest;
use roadstead_proto::api::v1::{SandboxStreamEvent, WatchSandboxRequest};
use roadstead_testkit::stack::Plan;
use roadstead_testkit::{Broker, Stack, eventually, soak};
use tonic::Streaming;

/// Times that every connection breaks.
const FLAPS: u32 = 5;
const READS: u32 = 500;
const WATCHES: u32 = 50;
/// When the broker holds what it held before.
const BOUND: Duration = Duration::from_secs(120);
/// What a process asks of the broker's API after a new connection, at most: admission looks after each stream, bucket
/// and consumer, others after those they use.
const CALLS: u64 = 60;

/// What the broker holds for the system.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    /// When each consumer was created, by stream and name.
    consumers: BTreeMap<(String, String), String>,
    connections: u64,
    subscriptions: u64,
}

impl Held {
    async fn by(broker: &Broker) -> Self {
        let streams = broker.monitor("/jsz?accounts=true&streams=true&consumers=true").await;
        let accounts = streams["account_details"].as_array().into_iter().flatten();
        let streams = accounts.flat_map(|account| account["stream_detail"].as_array().into_iter().flatten());
        let consumers = streams.flat_map(|stream| stream["consumer_detail"].as_array().into_iter().flatten());
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let consumers = consumers.map(|consumer| {
            let name = (text(&consumer["stream_name"]), text(&consumer["name"]));
            (name, text(&consumer["created"]))
        });
        let server = broker.monitor("/varz").await;
        Self {
            consumers: consumers.collect(),
            connections: server["connections"].as_u64().unwrap(),
            subscriptions: server["subscriptions"].as_u64().unwrap(),
        }
    }
}

/// Connections ever made, and calls of the API ever made.
async fn ever(broker: &Broker) -> (u64, u64) {
    let connections = broker.monitor("/varz").await["total_connections"].as_u64().unwrap();
    let calls = broker.monitor("/jsz").await["api"]["total"].as_u64().unwrap();
    (connections, calls)
}

/// Waits until the broker holds what it held, but for a subscription that a process makes when it first needs it.
async fn is_held_again(broker: &Broker, before: &Held, processes: u64) {
    eventually(BOUND, "the broker holds what it held before", async || {
        let held = Held::by(broker).await;
        let same = held.consumers == before.consumers && held.connections == before.connections;
        let few = held.subscriptions <= before.subscriptions + processes;
        if same && few { Ok(()) } else { Err(format!("{held:?}, before {before:?}")) }
    })
    .await;
}

/// Opens a watch with lines, until its first event.
async fn watch(mut edge: Client, fleet: &Fleet, name: &str) -> Streaming<SandboxStreamEvent> {
    let request = WatchSandboxRequest {
        workspace_scope: scope(fleet.workspace()),
        sandbox: name.to_owned(),
        follow_status: true,
        follow_logs: true,
        follow_events: true,
        ..Default::default()
    };
    let mut stream = edge.watch_sandbox(request).await.unwrap().into_inner();
    stream.message().await.unwrap().expect("the first event");
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_flap_and_clients_that_come_and_go_leave_nothing_on_the_broker() {
    let mut stack = Stack::start(Plan::pairs()).await;
    let fleet = Fleet::start(&stack, 2).await;
    let edges: Vec<_> = Fleet::edges(&stack).iter().map(|edge| client(edge)).collect();
    let processes = stack.nodes().len() as u64;
    let before = Held::by(stack.broker()).await;
    assert!(!before.consumers.is_empty() && before.connections == processes, "{before:?}");

    let (mut connections, calls) = ever(stack.broker()).await;
    for _ in 0..soak::count(FLAPS) {
        for node in stack.nodes() {
            node.nats.reset();
        }
        connections += processes;
        let broker = &*stack.broker();
        eventually(BOUND, "all are connected again", async || {
            let (made, held) = (ever(broker).await.0, Held::by(broker).await);
            assert_eq!(held.consumers, before.consumers, "none comes, none goes");
            if made >= connections && held.connections == processes {
                Ok(made)
            } else {
                Err(format!("{made} {held:?}"))
            }
        })
        .await;
    }
    let made = ever(stack.broker()).await;
    assert!(made.0 <= 2 * connections, "{} connections for {connections} breaks", made.0);
    let most = CALLS * processes * u64::from(soak::count(FLAPS));
    assert!(made.1 - calls <= most, "{} calls, at most {most}", made.1 - calls);
    is_held_again(stack.broker(), &before, processes).await;

    let names = fleet.names();
    for number in 0..soak::count(READS) as usize {
        let name = names[number % names.len()].clone();
        let request = GetSandboxConfigRequest { workspace_scope: scope(fleet.workspace()), name };
        edges[number % edges.len()].clone().get_sandbox_config(request).await.unwrap();
    }
    let mut open = Vec::new();
    for number in 0..soak::count(WATCHES) as usize {
        let name = &names[number % names.len()];
        open.push(watch(edges[number % edges.len()].clone(), &fleet, name).await);
    }
    is_held_again(stack.broker(), &before, processes).await;
    drop(open);
    is_held_again(stack.broker(), &before, processes).await;

    fleet.assert_watches_stayed();
    fleet.assert_ordered();
    assert_eq!(fleet.sessions(), [1, 1], "a session was lost");
}
