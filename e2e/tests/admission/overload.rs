//! More than can be done: what does not fit is refused before anything is stored, what was taken is done once, and when
//! it is over nothing is left of it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use roadstead_bus::EnqueueError;
use roadstead_e2e::{
    api::{Client, client, request_id},
    connection::connect_as,
};
use roadstead_proto::{api::v1::CreateSandboxRequest, method::Method, role::Role as KeysOf, stream::Stream, subject};
use roadstead_testkit::{
    Proxy, eventually, soak,
    stack::{Plan, Role},
};
use tokio::task::JoinSet;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::world::{Answer, SOON, World, create, mutation, together};

/// Places that are left in the queue, and how many come for them.
const LEFT: usize = 20;
const COMING: usize = 60;
const PUBLISHES: usize = 256;
/// What one caller may have in flight at each edge, and how many clients it has for each such place.
const SHARE: usize = 8;
const OFFERED: usize = 4;
const EACH: u32 = 4;

/// When a refused call may come again: such a refusal says so.
fn comes_again(status: &Status) -> Duration {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert!(status.message().contains("nothing was done"), "{status:?}");
    status.get_details_retry_info().and_then(|info| info.retry_delay).expect("it says when to come again")
}

/// Fills the queue of commands with noise, but for so many places.
async fn fill_queue(world: &mut World, left: usize) {
    let bus = connect_as(&mut world.stack, KeysOf::Edge).await;
    let room = usize::try_from(Stream::Commands.config().max_messages.unwrap()).unwrap();
    let subject = subject::command(Method::CreateSandbox);
    let publish = |_| bus.enqueue(subject.as_str(), Bytes::from_static(b"noise"), None);
    let ended: Vec<_> = stream::iter(0..room - left).map(publish).buffer_unordered(PUBLISHES).collect().await;
    let failed: Vec<&EnqueueError> = ended.iter().filter_map(|ended| ended.as_ref().err()).collect();
    assert!(failed.is_empty(), "{} of {}: {:?}", failed.len(), ended.len(), failed[0]);
}

fn creations(world: &World, prefix: &str, count: usize) -> Vec<CreateSandboxRequest> {
    (0..count).map(|number| world.creation(&format!("m-{prefix}-{number}"), &request_id())).collect()
}

async fn assert_told_the_truth(world: &World, sent: &[(String, Answer<String>)]) {
    let mutations: Vec<_> = sent.iter().map(|(name, told)| mutation(name, true, told)).collect();
    world.assert_sound(&mutations).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_at_once_and_what_it_took_is_carried_out_even_if_it_loses_everything() {
    let mut world = World::start(Plan::pairs(), &[]).await;
    for number in [1, 2] {
        world.stack.node_mut(Role::Admission, number).kill().await;
    }
    fill_queue(&mut world, LEFT).await;
    let before = world.ledger().await;

    let mut calls = JoinSet::new();
    for (number, request) in creations(&world, "late", COMING).into_iter().enumerate() {
        let api = world.api(1 + number % 2);
        calls.spawn(async move { (request.name.clone(), create(api, request).await) });
    }
    // Nobody is there to take any of them: whoever is told something now was refused.
    let mut told = Vec::new();
    while calls.len() > LEFT {
        told.push(tokio::time::timeout(SOON, calls.join_next()).await.expect("refused at once").unwrap().unwrap());
    }
    for (_, told) in &told {
        comes_again(told.as_ref().unwrap_err());
    }
    assert_eq!(world.ledger().await, before, "a refused one has left something");

    // The edges remember what the queue took.
    world.stack.broker().wipe().await;
    for number in [1, 2] {
        world.stack.node_mut(Role::Admission, number).resume();
    }
    let taken = tokio::time::timeout(SOON, calls.join_all()).await.expect("what was taken is answered");
    assert!(taken.iter().all(|(_, told)| told.is_ok()), "{taken:?}");
    told.extend(taken);
    assert_told_the_truth(&world, &told).await;
    assert!(!create(world.api(1), world.creation("after", &request_id())).await.unwrap().1);
}

/// Sends until it is taken; the answer.
async fn send(api: Client, request: CreateSandboxRequest, refused: Arc<AtomicUsize>) -> Answer<String> {
    loop {
        match create(api.clone(), request.clone()).await {
            Err(status) if status.code() == Code::ResourceExhausted => {
                refused.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(comes_again(&status)).await;
            }
            told => return told,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_four_times_what_fits_nothing_is_done_in_vain_and_afterwards_nothing_is_refused() {
    let plan = Plan::pairs().flag(Role::Edge, format!("--caller-share={SHARE}"));
    let world = World::start(plan, &[]).await;
    let clients = world.clients(2 * SHARE * OFFERED).await;
    let before = world.ledger().await;
    let refused = Arc::new(AtomicUsize::new(0));
    let each = soak::count(EACH) as usize;
    let all = clients.iter().enumerate().map(|(number, api)| {
        let (api, refused, requests) =
            (api.clone(), Arc::clone(&refused), creations(&world, &number.to_string(), each));
        async move {
            let mut told = Vec::new();
            for request in requests {
                told.push((request.name.clone(), send(api.clone(), request, Arc::clone(&refused)).await));
            }
            told
        }
    });
    let told: Vec<_> = together(all).await.into_iter().flatten().collect();
    let count = (clients.len() * each) as u64;
    assert!(told.iter().all(|(_, told)| matches!(told, Ok((_, false)))), "{told:?}");
    assert!(refused.load(Ordering::Relaxed) > 0, "it was never too much");
    assert_told_the_truth(&world, &told).await;
    // Every command that came to the database was a success that was told; those refused never came there.
    assert_eq!(world.ledger().await, before.map(|counted| counted + count));

    // As many as fit are taken now, all of them at once.
    let fitting = creations(&world, "after", 2 * SHARE);
    let calls = fitting.into_iter().zip(clients).map(|(request, api)| create(api, request));
    for told in together(calls).await {
        assert!(!told.unwrap().1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_clients_whose_connection_was_lost_are_carried_out_once_and_can_be_asked_for() {
    let world = World::start(Plan::pairs(), &[]).await;
    let edge = world.stack.node(Role::Edge, 1);
    let proxy = Proxy::before(edge.url().trim_start_matches("http://").parse().unwrap()).await;
    let api = client(&format!("http://{}", proxy.address()));
    let open = "roadstead_door_calls_open{role=\"edge\",method=\"CreateSandbox\"}";

    let mut rival = world.stack.session().await;
    let workspace = &world.workspace;
    rival.hold(&format!("select 1 from roadstead.workspace where name = '{workspace}' for update")).await;
    let requests = creations(&world, "lost", soak::count(16) as usize);
    let mut calls = JoinSet::new();
    for request in &requests {
        calls.spawn(create(api.clone(), request.clone()));
    }
    eventually(SOON, "all are under way", async || edge.metric(open).await == requests.len() as f64).await;
    // Nothing comes back any more, and when all was said in vain the connection breaks.
    proxy.lose_replies();
    rival.release().await;
    eventually(SOON, "all are carried out", async || world.sandboxes().await.len() == requests.len()).await;
    eventually(SOON, "all are answered", async || edge.metric(open).await == 0.0).await;
    assert_eq!(calls.len(), requests.len());
    proxy.reset();
    for told in calls.join_all().await {
        told.unwrap_err();
    }
    let ids = world.sandboxes().await;
    let again = together(requests.iter().map(|request| create(world.api(2), request.clone()))).await;
    for (request, told) in requests.iter().zip(again) {
        assert_eq!(told.unwrap(), (ids[&request.name].clone(), true));
    }
    assert_eq!(world.sandboxes().await, ids);
}
