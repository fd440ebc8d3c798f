//! Marks: one message a subject, replaced by the next.

use std::time::Duration;

use async_nats::jetstream::stream::DiscardPolicy;
use bytes::Bytes;
use roadstead_bus::pull::{self, Delivery};
use roadstead_bus::queue::{self, Backlog};
use roadstead_bus::{EnqueueError, topology};
use roadstead_proto::role::Role;
use roadstead_proto::stream::{Consumer, Stream};
use roadstead_proto::subject::{Changed, Dirty, Kind, Lane};
use roadstead_testkit::eventually;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::world::{LONG, Running, World};

/// A delivery in the test's hands; its slot is taken meanwhile.
struct Job {
    delivery: Delivery,
    _done: oneshot::Sender<()>,
}

impl Job {
    fn new(delivery: Delivery) -> (Self, oneshot::Receiver<()>) {
        let (sender, done) = oneshot::channel();
        (Self { delivery, _done: sender }, done)
    }

    fn text(&self) -> &str {
        std::str::from_utf8(self.delivery.payload()).unwrap()
    }

    async fn ack(self) {
        self.delivery.ack().await;
    }

    async fn put_back(self) {
        self.delivery.put_back(Duration::ZERO).await;
    }
}

/// Takes deliveries and hands them to the test.
async fn taker(world: &World, consumer: Consumer, slots: usize) -> (Running<()>, mpsc::Receiver<Job>) {
    let (sender, receiver) = mpsc::channel(64);
    let bus = world.bus(Role::ConfigSnapshot).await;
    let taker = Running::start(move |stop| async move {
        let handler = |delivery| {
            let sender = sender.clone();
            async move {
                let (job, done) = Job::new(delivery);
                sender.send(job).await.unwrap();
                // The slot is taken until the test has decided.
                let _decided = done.await;
            }
        };
        pull::run(&bus, consumer, slots, stop, handler).await.unwrap();
    });
    (taker, receiver)
}

async fn next(deliveries: &mut mpsc::Receiver<Job>) -> Job {
    tokio::time::timeout(LONG, deliveries.recv()).await.expect("no delivery").unwrap()
}

fn dirty() -> String {
    Dirty { lane: Lane::One, workspace_id: Uuid::nil(), sandbox_id: Uuid::nil() }.to_string()
}

#[tokio::test]
async fn a_hundred_marks_of_one_object_wait_as_one() {
    let world = World::new().await;
    for n in 0..100 {
        world.admission.enqueue(dirty(), Bytes::from(n.to_string()), None).await.unwrap();
    }
    assert_eq!(world.held(Stream::Dirty).await, 1);
    let (taker, mut deliveries) = taker(&world, Consumer::DirtyOne, 1).await;
    let delivery = next(&mut deliveries).await;
    assert_eq!(delivery.text(), "99");
    delivery.ack().await;
    world.holds(Stream::Dirty, 0).await;
    taker.stop().await;
}

#[tokio::test]
async fn a_mark_that_replaces_one_in_work_is_delivered_and_the_late_ack_of_the_first_does_not_remove_it() {
    let world = World::new().await;
    world.admission.enqueue(dirty(), "first".into(), None).await.unwrap();
    let (taker, mut deliveries) = taker(&world, Consumer::DirtyOne, 2).await;
    let first = next(&mut deliveries).await;
    world.admission.enqueue(dirty(), "second".into(), None).await.unwrap();
    let second = next(&mut deliveries).await;
    assert_eq!((first.text(), second.text()), ("first", "second"));
    first.ack().await;
    // Put back by its holder, the second is delivered once more: the first one's ack did not touch it.
    second.put_back().await;
    let again = next(&mut deliveries).await;
    assert_eq!((again.text(), again.delivery.attempt()), ("second", 2));
    again.ack().await;
    world.holds(Stream::Dirty, 0).await;
    taker.stop().await;
}

#[tokio::test]
async fn a_replaced_mark_whose_holder_is_silent_neither_comes_back_nor_holds_up_the_next() {
    let world = World::new().await;
    world.admission.enqueue(dirty(), "first".into(), None).await.unwrap();
    let (taker, mut deliveries) = taker(&world, Consumer::DirtyOne, 2).await;
    let silent = next(&mut deliveries).await;
    world.admission.enqueue(dirty(), "second".into(), None).await.unwrap();
    let second = next(&mut deliveries).await;
    assert_eq!(second.text(), "second");
    second.ack().await;
    world.holds(Stream::Dirty, 0).await;
    // Past the first one's ack wait nothing but what is new comes.
    let beyond = Consumer::DirtyOne.config().ack_wait + Duration::from_secs(2);
    let more = tokio::time::timeout(beyond, deliveries.recv()).await;
    assert!(more.is_err(), "what was replaced came again");
    world.admission.enqueue(dirty(), "third".into(), None).await.unwrap();
    let third = next(&mut deliveries).await;
    assert_eq!((third.text(), third.delivery.attempt()), ("third", 1));
    third.ack().await;
    drop(silent);
    taker.stop().await;
}

#[tokio::test]
async fn marks_of_one_object_coalesce_while_both_slots_are_at_work() {
    let world = World::new().await;
    let changed = |n: u128| {
        Changed { kind: Kind::Provider, workspace_id: Uuid::nil(), object_id: Uuid::from_u128(n) }.to_string()
    };
    let (taker, mut deliveries) = taker(&world, Consumer::Expansion, 2).await;
    for n in 0..2 {
        world.admission.enqueue(changed(n), "first".into(), None).await.unwrap();
    }
    let (one, two) = (next(&mut deliveries).await, next(&mut deliveries).await);
    for n in 0..50 {
        world.admission.enqueue(changed(0), Bytes::from(n.to_string()), None).await.unwrap();
    }
    one.ack().await;
    two.ack().await;
    let last = next(&mut deliveries).await;
    assert_eq!(last.text(), "49");
    last.ack().await;
    taker.stop().await;
    assert!(deliveries.try_recv().is_err());
}

#[tokio::test]
async fn a_stream_of_marks_at_its_limit_refuses_what_is_new_drops_nothing_and_takes_what_replaces() {
    let world = World::new().await;
    let (one, change) = (
        |n: u128| Dirty { lane: Lane::One, workspace_id: Uuid::nil(), sandbox_id: Uuid::from_u128(n) }.to_string(),
        |n: u128| Changed { kind: Kind::Sandbox, workspace_id: Uuid::nil(), object_id: Uuid::from_u128(n) }.to_string(),
    );
    let subjects: [(Stream, &dyn Fn(u128) -> String); 2] = [(Stream::Dirty, &one), (Stream::Changes, &change)];
    for (stream, subject) in subjects {
        world.adjust(stream, |config| config.max_messages = 2).await;
        let mark = async |n: u128| world.admission.enqueue(subject(n), "mark".into(), None).await;
        mark(1).await.unwrap();
        mark(2).await.unwrap();
        assert!(matches!(mark(3).await, Err(EnqueueError::Full)), "{stream:?}");
        mark(1).await.unwrap();
        assert_eq!(world.held(stream).await, 2, "{stream:?}");
        // Admission finds the limit at its next look.
        topology::ensure(&world.admission, 1).await.unwrap();
        mark(3).await.unwrap();
        assert_eq!(world.held(stream).await, 3, "{stream:?}");
    }
}

#[tokio::test]
async fn a_stream_of_marks_that_was_made_to_drop_is_made_to_refuse_again() {
    let world = World::new().await;
    for stream in [Stream::Dirty, Stream::Changes] {
        world.adjust(stream, |config| config.discard = DiscardPolicy::Old).await;
        topology::ensure(&world.admission, 1).await.unwrap();
        world.adjust(stream, |config| assert_eq!(config.discard, DiscardPolicy::New)).await;
    }
}

#[tokio::test]
async fn marks_at_the_limit_of_what_may_be_unacked_wait_and_all_of_them_come() {
    const MARKS: u32 = 40;
    let world = World::new().await;
    let consumer = Consumer::Expansion;
    let most = consumer.config().max_ack_pending.cast_unsigned();
    for n in 0..MARKS {
        let object_id = Uuid::from_u128(n.into());
        let mark = Changed { kind: Kind::Provider, workspace_id: Uuid::nil(), object_id }.to_string();
        world.admission.enqueue(mark, Bytes::from(n.to_string()), None).await.unwrap();
    }
    // Two replicas with more slots than may be unacked; one of them never says a word of what it has.
    let (frozen, mut silent) = taker(&world, consumer, 8).await;
    let held = [next(&mut silent).await, next(&mut silent).await];
    let backlog = queue::backlog(&world.admission, consumer).await.unwrap();
    assert_eq!(backlog, Backlog { pending: u64::from(MARKS) - most, unacked: most });
    frozen.abort().await;
    let (taker, mut deliveries) = taker(&world, consumer, 8).await;
    let mut came = std::collections::BTreeSet::new();
    while came.len() < MARKS as usize {
        let job = next(&mut deliveries).await;
        came.insert(job.text().to_owned());
        job.ack().await;
    }
    eventually(LONG, "nothing is left", || async {
        queue::backlog(&world.admission, consumer).await.is_ok_and(|left| left == Backlog { pending: 0, unacked: 0 })
    })
    .await;
    taker.stop().await;
    drop(held);
}
