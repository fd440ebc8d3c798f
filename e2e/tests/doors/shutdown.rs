//! E7: a process that is told to stop does so within its time, whatever its peers do, and nobody is told a lie.

use std::time::Duration;

use roadstead_e2e::Fleet;
use roadstead_e2e::api::{client, request_id, scope};
use roadstead_proto::api::v1::{GetSandboxPolicyStatusRequest, GetSandboxRequest, SandboxSpec, UpdateConfigRequest};
use roadstead_testkit::http2::{self, Connection};
use roadstead_testkit::stack::{Plan, Role};
use roadstead_testkit::{eventually, soak};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::{Code, Response};
use tonic_types::StatusExt as _;

use crate::world::{CROWD, World, address};

/// What calls and streams get to finish; in a soak it is what the documentation says.
const DRAIN: Duration = Duration::from_secs(8);
const DRAIN_IN_FULL: Duration = Duration::from_secs(20);
/// What the documentation grants a process beyond that.
const LAST_WORK: Duration = Duration::from_secs(5);
const LOCKED: Duration = Duration::from_secs(5);
const WATCHES: u32 = 20;
const MUTATIONS: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn every_process_stops_in_its_time_whatever_its_peers_do_and_all_are_told_the_truth() {
    let drain = if soak::factor() == 1 { DRAIN } else { DRAIN_IN_FULL };
    let flag = format!("--drain-seconds={}", drain.as_secs());
    let plan = Role::ALL.into_iter().fold(Plan::pairs(), |plan, role| plan.flag(role, flag.clone()));
    let mut world = World::start(plan).await;
    let fleet = Fleet::start(&world.stack, 2).await;
    let (mut side, mut locks) = (world.stack.session().await, world.stack.session().await);
    let (e1, e2) = (world.stack.edge(1), world.stack.edge(2));
    let mut names = Vec::new();
    for number in 0..MUTATIONS {
        names.push(format!("locked-{number}"));
        world.sandbox(&names[number], SandboxSpec::default()).await;
    }

    // Clients of the edge that stops: watches, and mutations whose rows are locked.
    let mut watches = JoinSet::new();
    for number in 0..soak::count(WATCHES) as usize {
        let watching = world.watching(&names[number % MUTATIONS]);
        let mut stream = client(&e1).watch_sandbox(watching).await.unwrap().into_inner();
        watches.spawn(async move {
            loop {
                match stream.message().await {
                    Ok(Some(_)) => {}
                    other => return (other.unwrap_err(), Instant::now()),
                }
            }
        });
    }
    let workspace = world.workspace.clone();
    locks.hold(&format!("select 1 from roadstead.sandbox where name in ('{}') for update", names.join("', '"))).await;
    let mut mutations = JoinSet::new();
    for name in names.clone() {
        let request = UpdateConfigRequest {
            workspace_scope: scope(&workspace),
            sandbox: name.clone(),
            policy: Some(roadstead_e2e::policy::to_host("example.com", None)),
            request_id: request_id(),
            ..Default::default()
        };
        let mut client = client(&e1);
        mutations.spawn(async move { (name, client.update_config(request).await.map(Response::into_inner)) });
    }
    let open = "roadstead_door_calls_open{role=\"edge\",method=\"UpdateConfig\"}";
    eventually(CROWD, "the mutations are on their way", || async {
        world.stack.node(Role::Edge, 1).metric(open).await as usize == MUTATIONS
    })
    .await;

    // Peers that would hold up the end of both doors, and of every admin port.
    let mut bad = Vec::new();
    let mut deaf = Vec::new();
    for node in world.stack.nodes().iter().filter(|node| node.number() == 1) {
        let doors = matches!(node.role(), Role::Edge | Role::SupervisorBridge).then(|| address(node));
        for address in doors.into_iter().chain([node.admin()]) {
            for begin in [&b""[..], b"PRI * HT", b"GET / HTTP/1.1\r\nX-Slow: ", &[0x16, 3, 1, 0]] {
                let mut peer = TcpStream::connect(address).await.unwrap();
                peer.write_all(begin).await.unwrap();
                bad.push(peer);
            }
        }
        if let Some(address) = doors {
            // Never answers a ping, never heeds the end of the connection.
            let mut peer = Connection::open(address, &[]).await;
            let call = http2::frame(http2::HEADERS, http2::END_HEADERS, 1, &http2::head("/a.Service/Call", &[]));
            peer.sends.bytes(&call).await.unwrap();
            deaf.push(peer);
        }
    }

    // Reads through the other edge go on all the time.
    let reading = tokio::spawn({
        let (mut client, name, workspace) = (client(&e2), names[0].clone(), workspace.clone());
        async move {
            for count in 0_u64.. {
                let request = GetSandboxRequest { workspace_scope: scope(&workspace), name: name.clone() };
                if let Err(status) = client.get_sandbox(request).await {
                    return (count, status);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            unreachable!("there is always a next one")
        }
    });

    let told = Instant::now();
    for role in Role::ALL {
        world.stack.node(role, 1).victim().terminate();
    }
    let listener = address(world.stack.node(Role::Edge, 1));
    eventually(CROWD, "new connections are refused", || async { TcpStream::connect(listener).await.is_err() }).await;

    let (mut ends, mut delays) = (Vec::new(), Vec::new());
    while let Some(ended) = watches.join_next().await {
        let (status, at) = ended.unwrap();
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
        let retry = status.get_details_retry_info().and_then(|info| info.retry_delay);
        delays.push(retry.expect("they are told when to come back"));
        ends.push(at - told);
    }
    ends.sort();
    delays.sort();
    let (first, last) = (ends[0], ends[ends.len() - 1]);
    assert!(last <= roadstead_door::drain::SPREAD + CROWD, "the last ends after {last:?}");
    assert!(last - first >= Duration::from_millis(500), "they end in one wave: {ends:?}");
    assert!(delays[delays.len() - 1] - delays[0] >= Duration::from_millis(200), "they return in one wave: {delays:?}");

    // The locks go while everything drains.
    tokio::time::sleep(LOCKED.saturating_sub(told.elapsed())).await;
    locks.release().await;
    while let Some(told) = mutations.join_next().await {
        let (name, answer) = told.unwrap();
        let answer = answer.expect("the mutation succeeded, and its client is told so");
        let request = GetSandboxPolicyStatusRequest {
            workspace_scope: scope(&workspace),
            sandbox: name.clone(),
            version: answer.version,
            ..Default::default()
        };
        let status = client(&e2).get_sandbox_policy_status(request).await.unwrap().into_inner();
        assert_eq!(status.revision.unwrap().policy_hash, answer.policy_hash, "{name} has the policy it was told of");
    }
    for role in Role::ALL {
        let left = (drain + LAST_WORK + CROWD).saturating_sub(told.elapsed());
        world.stack.node_mut(role, 1).ended(left).await;
    }
    assert!(!reading.is_finished(), "a read through the other edge failed: {:?}", reading.await);
    reading.abort();
    for member in fleet.members() {
        member.reconnected(1, CROWD).await;
    }
    fleet.assert_never_unready(&mut side).await;
    fleet.assert_ordered();
    drop((bad, deaf));
}
