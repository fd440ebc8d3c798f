use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use roadstead_bus::service::{Endpoint, Slots, serve};
use roadstead_bus::{Bus, RequestError};
use roadstead_proto::role::Role;
use roadstead_testkit::eventually;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::world::{LONG, Log, Running, World, log, metric};

const SUBJECT: &str = "roadstead.read.GetSandbox";

fn service(bus: Bus, slots: impl Into<Slots>, endpoints: Vec<Endpoint>) -> Running<()> {
    let slots = slots.into();
    Running::start(move |stop| async move { serve(&bus, "watch", endpoints, slots, stop).await.unwrap() })
}

fn echo() -> Vec<Endpoint> {
    vec![Endpoint::new(SUBJECT, |request| async move { request })]
}

async fn read(bus: &Bus, question: &str, timeout: Duration) -> Result<Bytes, RequestError> {
    bus.read(SUBJECT, Bytes::copy_from_slice(question.as_bytes()), timeout, |_| true).await
}

async fn is_served(bus: &Bus) {
    eventually(LONG, "the service answers", || bus.request(SUBJECT, "?".into(), LONG)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_answered_and_operators_see_the_service() {
    let world = World::new().await;
    let edge = world.bus(Role::Edge).await;
    let service = service(world.bus(Role::Watch).await, 4, echo());
    is_served(&edge).await;
    assert_eq!(edge.request(SUBJECT, "x".into(), LONG).await.unwrap(), "x");

    let client = async_nats::connect(world.broker.url()).await.unwrap();
    let inbox = client.new_inbox();
    let mut replies = client.subscribe(inbox.clone()).await.unwrap();
    client.publish_with_reply("$SRV.INFO.watch", inbox, Bytes::new()).await.unwrap();
    let info = tokio::time::timeout(LONG, replies.next()).await.unwrap().unwrap();
    let info: serde_json::Value = serde_json::from_slice(&info.payload).unwrap();
    assert_eq!(info["endpoints"][0]["subject"], SUBJECT);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_the_requests_and_a_stopped_one_takes_none() {
    let world = World::new().await;
    let edge = world.bus(Role::Edge).await;
    let named = |name: &'static str| vec![Endpoint::new(SUBJECT, move |_| async move { Bytes::from(name) })];
    let one = service(world.bus(Role::Watch).await, 4, named("one"));
    let two = service(world.bus(Role::Watch).await, 4, named("two"));
    for name in ["one", "two"] {
        eventually(LONG, name, || async { edge.request(SUBJECT, Bytes::new(), LONG).await.is_ok_and(|by| by == name) })
            .await;
    }
    one.stop().await;
    for _ in 0..50 {
        assert_eq!(edge.request(SUBJECT, Bytes::new(), LONG).await.unwrap(), "two");
    }
    two.stop().await;
    eventually(LONG, "nobody serves", || async {
        matches!(edge.request(SUBJECT, Bytes::new(), LONG).await, Err(RequestError::NoResponders))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_refused_at_once_and_a_stop_finishes_the_rest() {
    const SLOTS: Slots = Slots { working: 2, waiting: 30 };
    const PLACES: usize = SLOTS.working + SLOTS.waiting;
    let world = World::new().await;
    let edge = world.bus(Role::Edge).await;
    let gate = Arc::new(Semaphore::new(0));
    let blocked = Arc::clone(&gate);
    let endpoint = Endpoint::new(SUBJECT, move |request| {
        let gate = Arc::clone(&blocked);
        async move {
            let _pass = gate.acquire().await.unwrap();
            request
        }
    });
    let ready = Endpoint::new("roadstead.read.Ready", |request| async move { request });
    let service = service(world.bus(Role::Watch).await, SLOTS, vec![endpoint, ready]);
    eventually(LONG, "the service answers", || edge.request("roadstead.read.Ready", "?".into(), LONG)).await;

    let mut asked = JoinSet::new();
    for _ in 0..PLACES + 5 {
        let edge = edge.clone();
        asked.spawn(async move { edge.request(SUBJECT, "x".into(), LONG).await });
    }
    for _ in 0..5 {
        let refused = asked.join_next().await.unwrap().unwrap();
        assert!(matches!(refused, Err(RequestError::Overloaded)), "{refused:?}");
    }
    // Told to stop, it still answers all that have a place.
    service.stop.cancel();
    gate.add_permits(PLACES);
    for _ in 0..PLACES {
        assert_eq!(asked.join_next().await.unwrap().unwrap().unwrap(), "x");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_there_again_after_the_broker_was_killed() {
    let mut world = World::new().await;
    let edge = world.bus(Role::Edge).await;
    let service = service(world.bus(Role::Watch).await, 4, echo());
    is_served(&edge).await;
    world.broker.kill().await;
    world.broker.resume().await;
    eventually(LONG, "the service answers", || edge.request(SUBJECT, "?".into(), Duration::from_millis(500))).await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_answered_though_all_but_one_replica_hang() {
    let world = World::new().await;
    let edge = world.bus(Role::Edge).await;
    let hangs = || vec![Endpoint::read(SUBJECT, |_| std::future::pending::<Bytes>())];
    let mut hanging = Vec::new();
    for _ in 0..4 {
        hanging.push(service(world.bus(Role::Watch).await, 64, hangs()));
    }
    let echo = vec![Endpoint::read(SUBJECT, |request| async move { request })];
    let lives = service(world.bus(Role::Watch).await, 64, echo);
    eventually(LONG, "one lives", || read(&edge, "?", LONG)).await;
    let mut questions = JoinSet::new();
    for number in 0..32 {
        let edge = edge.clone();
        questions.spawn(async move {
            let question = number.to_string();
            assert_eq!(read(&edge, &question, LONG).await.unwrap(), question);
        });
    }
    questions.join_all().await;
    // What has an effect is not put to all.
    let (admin, told) = ("roadstead.admin.MintSandboxToken", Arc::new(Semaphore::new(0)));
    let count = Arc::clone(&told);
    let once = vec![Endpoint::new(admin, move |_| {
        count.add_permits(1);
        std::future::pending::<Bytes>()
    })];
    let served = service(world.bus(Role::Admission).await, 4, once);
    eventually(LONG, "it is told once", || async {
        let asked = edge.read(admin, Bytes::new(), Duration::from_secs(3), |_| true).await;
        matches!(asked, Err(RequestError::TimedOut))
    })
    .await;
    assert_eq!(told.available_permits(), 1);
    for running in hanging.into_iter().chain([served]) {
        running.abort().await;
    }
    lives.stop().await;
}

/// Notes what it begins to work on, and answers when the gate lets it.
fn gated(begun: &Log<Bytes>, gate: &Arc<Semaphore>) -> Vec<Endpoint> {
    let (begun, gate) = (Arc::clone(begun), Arc::clone(gate));
    vec![Endpoint::read(SUBJECT, move |question: Bytes| {
        begun.lock().unwrap().push(question.clone());
        let gate = Arc::clone(&gate);
        async move {
            let _pass = gate.acquire().await.unwrap();
            question
        }
    })]
}

/// Replicas with closed gates, each of which is at work, and what they begin.
struct AtWork {
    edge: Bus,
    buses: [Bus; 2],
    replicas: [Running<()>; 2],
    begun: [Log<Bytes>; 2],
    gate: Arc<Semaphore>,
    _before: JoinSet<Result<Bytes, RequestError>>,
}

impl AtWork {
    async fn start(world: &World, slots: usize) -> Self {
        let edge = world.bus(Role::Edge).await;
        let (begun, gate) = ([log(), log()], Arc::new(Semaphore::new(0)));
        let buses = [world.bus(Role::Watch).await, world.bus(Role::Watch).await];
        let replicas = [0, 1].map(|number| service(buses[number].clone(), slots, gated(&begun[number], &gate)));
        let mut before = JoinSet::new();
        eventually(LONG, "both are at work", || {
            let edge = edge.clone();
            before.spawn(async move { edge.request(SUBJECT, "before".into(), LONG).await });
            let all = begun.iter().all(|begun| !begun.lock().unwrap().is_empty());
            async move { all }
        })
        .await;
        Self { edge, buses, replicas, begun, gate, _before: before }
    }

    /// How often each has begun to work on this.
    fn begun(&self, question: &str) -> [usize; 2] {
        let count = |begun: &Log<Bytes>| begun.lock().unwrap().iter().filter(|begun| *begun == question).count();
        self.begun.each_ref().map(count)
    }

    async fn stop(self) {
        self.gate.add_permits(1000);
        for running in self.replicas {
            running.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_replica_works_on_a_question_twice_at_a_time() {
    let world = World::new().await;
    let at_work = AtWork::start(&world, 512).await;
    // It is asked again after one second and after three.
    let asked = read(&at_work.edge, "x", Duration::from_secs(6)).await;
    assert!(matches!(asked, Err(RequestError::TimedOut)), "{asked:?}");
    assert!(metric(&at_work.edge, "broker_reads_repeated_total") >= 2.0);
    assert_eq!(at_work.begun("x"), [1, 1]);
    at_work.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_without_an_idle_slot_leaves_a_copy_to_the_others() {
    let world = World::new().await;
    let at_work = AtWork::start(&world, 1).await;
    let edge = at_work.edge.clone();
    let asked = tokio::spawn(async move { read(&edge, "x", LONG).await });
    let left = || async { at_work.buses.iter().any(|bus| metric(bus, "broker_reads_left_total") >= 1.0) };
    eventually(LONG, "the copy is left to the one that has it", left).await;
    at_work.gate.add_permits(1000);
    assert_eq!(asked.await.unwrap().unwrap(), "x");
    let begun = at_work.begun("x");
    assert_eq!(begun.iter().sum::<usize>(), 1, "{begun:?}");
    at_work.stop().await;
}
