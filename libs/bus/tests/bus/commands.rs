use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use roadstead_bus::door::{CallError, CommandClient};
use roadstead_bus::pull::{self, Delivery};
use roadstead_bus::{Bus, EnqueueError};
use roadstead_proto::role::Role;
use roadstead_proto::stream::{Consumer, Stream};
use roadstead_testkit::eventually;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use uuid::Uuid;

use crate::world::{LONG, Log, Running, World, log};

const SUBJECT: &str = "roadstead.command.CreateSandbox";

/// Answers every command with its text in capitals, and logs its text.
async fn worker(world: &World, log: &Log<String>) -> Running<()> {
    let bus = world.bus(Role::Admission).await;
    let log = Arc::clone(log);
    Running::start(move |stop| async move {
        let handler = |delivery: Delivery| {
            let (bus, log) = (bus.clone(), Arc::clone(&log));
            async move {
                let text = String::from_utf8(delivery.payload().to_vec()).unwrap();
                bus.publish(delivery.reply().unwrap(), Bytes::from(text.to_uppercase())).await.unwrap();
                log.lock().unwrap().push(text);
                delivery.ack().await;
            }
        };
        pull::run(&bus, Consumer::Commands, 8, stop, handler).await.unwrap();
    })
}

async fn client(bus: &Bus) -> CommandClient {
    CommandClient::new(bus, 256).await.unwrap()
}

fn call(client: &CommandClient, text: &'static str, within: Duration) -> JoinHandle<Result<Bytes, CallError>> {
    let client = client.clone();
    tokio::spawn(async move { client.call(SUBJECT, Uuid::now_v7(), text.into(), Instant::now() + within).await })
}

async fn ended(call: JoinHandle<Result<Bytes, CallError>>) -> Result<Bytes, CallError> {
    tokio::time::timeout(LONG, call).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_gets_its_own_answer() {
    let world = World::new().await;
    let worker = worker(&world, &log()).await;
    let client = client(&world.bus(Role::Edge).await).await;
    let mut calls = JoinSet::new();
    for n in 0..200 {
        let client = client.clone();
        calls.spawn(async move {
            let answer =
                client.call(SUBJECT, Uuid::now_v7(), Bytes::from(format!("c{n}")), Instant::now() + LONG).await;
            assert_eq!(answer.unwrap(), format!("C{n}"));
        });
    }
    while let Some(call) = calls.join_next().await {
        call.unwrap();
    }
    assert_eq!(client.pending(), 0);
    worker.stop().await;
}

/// What makes a mutation slow is its number of hops: the command and its ack, the delivery, the answer, the ack of the
/// delivery, and a request for the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_costs_no_more_than_six_messages_at_the_broker() {
    const COMMANDS: usize = 20;
    const SLOTS: usize = 8;
    const REQUEST_STANDS: Duration = Duration::from_secs(3);
    let world = World::new().await;
    let began = Instant::now();
    let worker = worker(&world, &log()).await;
    let client = client(&world.bus(Role::Edge).await).await;
    assert_eq!(ended(call(&client, "first", LONG)).await.unwrap(), "FIRST");

    let spy = async_nats::connect(world.broker.url()).await.unwrap();
    let mut seen = spy.subscribe(">").await.unwrap();
    spy.flush().await.unwrap();
    for _ in 0..COMMANDS {
        ended(call(&client, "again", LONG)).await.unwrap();
    }
    worker.stop().await;
    spy.publish("end", Bytes::new()).await.unwrap();

    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    while let Some(message) = seen.next().await.filter(|message| message.subject.as_str() != "end") {
        let class = match message.subject.as_str() {
            subject if subject.starts_with("roadstead.command.") => "command and delivery",
            subject if subject.starts_with("$JS.ACK.") => "ack of the delivery",
            subject if subject.starts_with("$JS.API.CONSUMER.MSG.NEXT.") => "request for the next",
            // A request that stood too long ends with a status.
            _ if message.status.is_some() => "status",
            _ if message.payload.is_empty() => "barrier",
            _ => "ack of the command and answer",
        };
        *counts.entry(class).or_default() += 1;
    }
    let count = |class: &str| counts.get(class).copied().unwrap_or_default();
    // At most: the broker does not promise a listener on everything that it sees every copy.
    let at_most = |class: &str, each: usize| assert!((1..=each * COMMANDS).contains(&count(class)), "{counts:?}");
    at_most("command and delivery", 2);
    at_most("ack of the command and answer", 2);
    at_most("ack of the delivery", 1);
    // One more may be left from the first command, one less is made by a loop that stops.
    let renewed = usize::try_from(began.elapsed().as_secs() / REQUEST_STANDS.as_secs()).unwrap() * SLOTS;
    let requests = count("request for the next");
    assert!((COMMANDS - 1..=COMMANDS + 1 + renewed).contains(&requests), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_a_first_publish_at_once() {
    let world = World::new().await;
    world.adjust(Stream::Commands, |config| config.max_messages = 1).await;
    let bus = world.bus(Role::Edge).await;
    let client = client(&bus).await;
    let waiting = call(&client, "first", LONG);
    world.holds(Stream::Commands, 1).await;
    assert_eq!(ended(call(&client, "second", LONG)).await, Err(CallError::Full));
    assert!(matches!(bus.enqueue(SUBJECT, "third".into(), None).await, Err(EnqueueError::Full)));
    let log = log();
    let worker = worker(&world, &log).await;
    assert_eq!(ended(waiting).await.unwrap(), "FIRST");
    assert_eq!(*log.lock().unwrap(), ["first"]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_ack_leads_to_a_resend_and_the_answer_is_told() {
    let world = World::new().await;
    world.adjust(Stream::Commands, |config| config.no_ack = true).await;
    let bus = world.bus(Role::Edge).await;
    assert!(matches!(bus.enqueue(SUBJECT, "alone".into(), None).await, Err(EnqueueError::Unknown)));
    let waiting = call(&client(&bus).await, "asked", LONG);
    // The lone one, the first publish, and one re-send.
    world.holds(Stream::Commands, 3).await;
    let worker = {
        let store = world.store().await;
        let stream = store.get_stream(Stream::Commands.config().name).await.unwrap();
        stream.delete_message(1).await.unwrap_err();
        stream.purge().sequence(2).await.unwrap();
        worker(&world, &log()).await
    };
    assert_eq!(ended(waiting).await.unwrap(), "ASKED");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resend_that_is_refused_tells_nothing_and_the_answer_still_counts() {
    let world = World::new().await;
    world.adjust(Stream::Commands, |config| config.no_ack = true).await;
    let client = client(&world.bus(Role::Edge).await).await;
    let waiting = call(&client, "asked", LONG);
    world.holds(Stream::Commands, 1).await;
    // From now on acks come, and the queue is full: every re-send is refused.
    world
        .adjust(Stream::Commands, |config| {
            config.no_ack = false;
            config.max_messages = 1;
        })
        .await;
    assert_eq!(ended(call(&client, "other", LONG)).await, Err(CallError::Full));
    // Past the first ack's time and well into the re-send's.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!waiting.is_finished());
    let worker = worker(&world, &log()).await;
    assert_eq!(ended(waiting).await.unwrap(), "ASKED");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_are_sent_again_after_a_reconnect() {
    let mut world = World::new().await;
    let bus = world.bus(Role::Edge).await;
    let waiting = call(&client(&bus).await, "asked", LONG);
    world.holds(Stream::Commands, 1).await;
    world.broker.kill().await;
    world.broker.resume().await;
    let back = Instant::now();
    world.holds(Stream::Commands, 2).await;
    assert!(back.elapsed() < Duration::from_secs(5), "not by the patience of six seconds: {:?}", back.elapsed());
    let worker = worker(&world, &log()).await;
    assert_eq!(ended(waiting).await.unwrap(), "ASKED");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_without_an_answer_ends_at_its_deadline_as_unknown() {
    let world = World::new().await;
    let client = client(&world.bus(Role::Edge).await).await;
    let begun = Instant::now();
    let end = ended(call(&client, "asked", Duration::from_secs(1))).await;
    assert_eq!(end, Err(CallError::OutcomeUnknown));
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!(client.pending(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_no_stream_takes_or_no_broker_hears_was_not_done() {
    let mut world = World::new().await;
    let bus = world.bus(Role::Edge).await;
    let client = client(&bus).await;
    world.store().await.delete_stream(Stream::Commands.config().name).await.unwrap();
    assert_eq!(ended(call(&client, "asked", LONG)).await, Err(CallError::Unavailable));
    world.broker.stop().await;
    eventually(LONG, "the loss is noticed", || async { !bus.is_connected() }).await;
    assert_eq!(ended(call(&client, "asked", LONG)).await, Err(CallError::Unavailable));
    assert_eq!(client.pending(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_takes_no_more_than_its_capacity() {
    let world = World::new().await;
    let client = CommandClient::new(&world.bus(Role::Edge).await, 2).await.unwrap();
    let waiting = [call(&client, "a", LONG), call(&client, "b", LONG)];
    world.holds(Stream::Commands, 2).await;
    assert_eq!(ended(call(&client, "c", LONG)).await, Err(CallError::Full));
    let worker = worker(&world, &log()).await;
    for call in waiting {
        ended(call).await.unwrap();
    }
    assert_eq!(ended(call(&client, "c", LONG)).await.unwrap(), "C");
    worker.stop().await;
}
