use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use roadstead_bus::Bus;
use roadstead_bus::pull::{self, Delivery};
use roadstead_proto::role::Role;
use roadstead_proto::stream::{Consumer, Stream};
use roadstead_testkit::proxy::Direction;
use roadstead_testkit::{Proxy, eventually};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::world::{LONG, Log, Running, World, connect, keep_topology, lines, log, metric};

const SUBJECT: &str = "roadstead.command.CreateSandbox";

/// Acks everything and logs text and attempt.
fn worker(bus: Bus, slots: usize, log: &Log<(String, u64)>) -> Running<()> {
    let log = Arc::clone(log);
    Running::start(move |stop| async move {
        let handler = |delivery: Delivery| {
            let log = Arc::clone(&log);
            async move {
                log.lock().unwrap().push((text(&delivery), delivery.attempt()));
                delivery.ack().await;
            }
        };
        pull::run(&bus, Consumer::Commands, slots, stop, handler).await.unwrap();
    })
}

fn text(delivery: &Delivery) -> String {
    String::from_utf8(delivery.payload().to_vec()).unwrap()
}

async fn publish(bus: &Bus, texts: impl IntoIterator<Item = String>) {
    let mut publishing = JoinSet::new();
    for text in texts {
        let bus = bus.clone();
        publishing.spawn(async move { bus.enqueue(SUBJECT, Bytes::from(text), None).await });
    }
    while let Some(published) = publishing.join_next().await {
        published.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_slot_is_never_silent_while_there_is_work() {
    const MESSAGES: usize = 3000;
    let world = World::new().await;
    let edge = world.bus(Role::Edge).await;
    let times: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let bus = world.bus(Role::Admission).await;
    let worker = Running::start({
        let times = Arc::clone(&times);
        move |stop| async move {
            let handler = |delivery: Delivery| {
                let times = Arc::clone(&times);
                async move {
                    times.lock().unwrap().push(Instant::now());
                    delivery.ack().await;
                }
            };
            pull::run(&bus, Consumer::Commands, 1, stop, handler).await.unwrap();
        }
    });
    publish(&edge, (0..MESSAGES).map(|n| n.to_string())).await;
    let times = lines(&times, MESSAGES).await;
    let worst = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    // A request lost from the count would be missed for three seconds at least.
    assert!(worst < Duration::from_millis(2500), "silent for {worst:?}");
    world.holds(Stream::Commands, 0).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_comes_after_a_long_quiet_is_delivered_at_once() {
    let world = World::new().await;
    let edge = world.bus(Role::Edge).await;
    let log = log();
    let worker = worker(world.bus(Role::Admission).await, 1, &log);
    // Requests expire after 3 s; each pause ends at another point of that time.
    for (n, pause) in [1000, 2900, 3050, 3200].into_iter().enumerate() {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let sent = Instant::now();
        publish(&edge, [n.to_string()]).await;
        lines(&log, n + 1).await;
        assert!(sent.elapsed() < Duration::from_secs(2), "after {pause} ms: {:?}", sent.elapsed());
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_than_the_slots_are_in_work_and_the_rest_stays_with_the_broker() {
    const SLOTS: usize = 3;
    let world = World::new().await;
    let edge = world.bus(Role::Edge).await;
    publish(&edge, (0..20).map(|n| n.to_string())).await;
    let (busy, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let bus = world.bus(Role::Admission).await;
    let worker = Running::start({
        let (busy, most) = (Arc::clone(&busy), Arc::clone(&most));
        move |stop| async move {
            let handler = |delivery: Delivery| {
                let (busy, most) = (Arc::clone(&busy), Arc::clone(&most));
                async move {
                    most.fetch_max(busy.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    assert_eq!(delivery.attempt(), 1, "nothing was taken that had to wait");
                    busy.fetch_sub(1, Ordering::SeqCst);
                    delivery.ack().await;
                }
            };
            pull::run(&bus, Consumer::Commands, SLOTS, stop, handler).await.unwrap();
        }
    });
    world.holds(Stream::Commands, 0).await;
    assert_eq!(most.load(Ordering::SeqCst), SLOTS);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_message_of_a_holder_that_vanished_comes_again_to_another() {
    let world = World::new().await;
    let edge = world.bus(Role::Edge).await;
    let taken = log();
    let doomed = world.bus(Role::Admission).await;
    let holder = Running::start({
        let (bus, taken) = (doomed.clone(), Arc::clone(&taken));
        move |stop| async move {
            let handler = |delivery: Delivery| {
                let taken = Arc::clone(&taken);
                async move {
                    taken.lock().unwrap().push(text(&delivery));
                    // As a killed process would: nothing is ever said about it.
                    std::mem::forget(delivery);
                    std::future::pending::<()>().await;
                }
            };
            pull::run(&bus, Consumer::Commands, 4, stop, handler).await.unwrap();
        }
    });
    publish(&edge, ["held".to_owned()]).await;
    lines(&taken, 1).await;
    holder.abort().await;
    doomed.close().await;

    let log = log();
    let survivor = worker(world.bus(Role::Admission).await, 4, &log);
    publish(&edge, ["new".to_owned()]).await;
    let lines = lines(&log, 2).await;
    assert_eq!(lines, [("new".to_owned(), 1), ("held".to_owned(), 2)]);
    survivor.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_is_dropped_or_whose_handler_fails_is_put_back() {
    let world = World::new().await;
    let edge = world.bus(Role::Edge).await;
    let log = log();
    let bus = world.bus(Role::Admission).await;
    let worker = Running::start({
        let log = Arc::clone(&log);
        move |stop| async move {
            let handler = |delivery: Delivery| {
                let log = Arc::clone(&log);
                async move {
                    log.lock().unwrap().push((delivery.attempt(), Instant::now()));
                    match delivery.attempt() {
                        1 => drop(delivery),
                        2 => panic!("a handler fails"),
                        3 => delivery.put_back(Duration::from_millis(300)).await,
                        _ => delivery.ack().await,
                    }
                }
            };
            pull::run(&bus, Consumer::Commands, 1, stop, handler).await.unwrap();
        }
    });
    publish(&edge, ["x".to_owned()]).await;
    let lines = lines(&log, 4).await;
    assert_eq!(lines.iter().map(|(attempt, _)| *attempt).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let ack_wait = Consumer::Commands.config().ack_wait;
    assert!(lines[3].1 - lines[0].1 < ack_wait, "none of them waited for the ack wait");
    assert!(lines[3].1 - lines[2].1 >= Duration::from_millis(300));
    world.holds(Stream::Commands, 0).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_set_aside_never_comes_again() {
    let world = World::new().await;
    let edge = world.bus(Role::Edge).await;
    let log = log();
    let bus = world.bus(Role::Admission).await;
    let worker = Running::start({
        let log = Arc::clone(&log);
        move |stop| async move {
            let handler = |delivery: Delivery| {
                let log = Arc::clone(&log);
                async move {
                    log.lock().unwrap().push(text(&delivery));
                    delivery.set_aside("it is poison").await;
                }
            };
            pull::run(&bus, Consumer::Commands, 1, stop, handler).await.unwrap();
        }
    });
    publish(&edge, ["poison".to_owned()]).await;
    world.holds(Stream::Commands, 0).await;
    assert_eq!(lines(&log, 1).await, ["poison"]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_at_work_keeps_its_message_beyond_the_ack_wait() {
    let world = World::new().await;
    let edge = world.bus(Role::Edge).await;
    let log = log();
    let bus = world.bus(Role::Admission).await;
    let work = Consumer::Commands.config().ack_wait + Duration::from_millis(1500);
    let worker = Running::start({
        let log = Arc::clone(&log);
        move |stop| async move {
            let handler = |delivery: Delivery| {
                let log = Arc::clone(&log);
                async move {
                    log.lock().unwrap().push(delivery.attempt());
                    delivery.holding(tokio::time::sleep(work)).await;
                    delivery.ack().await;
                }
            };
            pull::run(&bus, Consumer::Commands, 4, stop, handler).await.unwrap();
        }
    });
    publish(&edge, ["slow".to_owned()]).await;
    world.holds(Stream::Commands, 0).await;
    worker.stop().await;
    assert_eq!(*log.lock().unwrap(), [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn work_goes_on_soon_after_the_broker_was_killed() {
    let mut world = World::new().await;
    let (edge, bus) = (world.bus(Role::Edge).await, world.bus(Role::Admission).await);
    let log = log();
    let worker = worker(bus.clone(), 2, &log);
    for round in 0..3 {
        publish(&edge, [format!("before {round}")]).await;
        lines(&log, 2 * round + 1).await;
        world.broker.kill().await;
        world.broker.resume().await;
        tokio::time::timeout(LONG, async { tokio::join!(edge.connected(), bus.connected()) }).await.unwrap();
        let back = Instant::now();
        publish(&edge, [format!("after {round}")]).await;
        lines(&log, 2 * round + 2).await;
        assert!(back.elapsed() < Duration::from_millis(2500), "{:?}", back.elapsed());
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_vanished_is_reported_made_again_and_served() {
    let world = World::new().await;
    let edge = world.bus(Role::Edge).await;
    let log = log();
    let worker = worker(world.admission.clone(), 2, &log);
    publish(&edge, ["before".to_owned()]).await;
    lines(&log, 1).await;
    let keeper = keep_topology(&world.admission);
    let config = Consumer::Commands.config();
    let store = world.store().await;
    // First the consumer alone, then the whole stream.
    store.get_stream(config.stream.config().name).await.unwrap().delete_consumer(config.name).await.unwrap();
    publish(&edge, ["consumer gone".to_owned()]).await;
    let without = Instant::now();
    lines(&log, 2).await;
    assert!(without.elapsed() < Duration::from_secs(10), "{:?}", without.elapsed());
    store.delete_stream(config.stream.config().name).await.unwrap();
    eventually(LONG, "the queue takes messages again", || edge.enqueue(SUBJECT, "stream gone".into(), None)).await;
    lines(&log, 3).await;
    keeper.stop().await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_is_stopped_finishes_what_it_took_and_leaves_the_rest_to_others_at_once() {
    let world = World::new().await;
    let edge = world.bus(Role::Edge).await;
    let (begun, log) = (log(), log());
    let release = CancellationToken::new();
    let bus = world.bus(Role::Admission).await;
    let first = Running::start({
        let (begun, release) = (Arc::clone(&begun), release.clone());
        move |stop| async move {
            let handler = |delivery: Delivery| {
                let (begun, release) = (Arc::clone(&begun), release.clone());
                async move {
                    begun.lock().unwrap().push(text(&delivery));
                    delivery.holding(release.cancelled()).await;
                    delivery.ack().await;
                }
            };
            pull::run(&bus, Consumer::Commands, 8, stop, handler).await.unwrap();
        }
    });
    publish(&edge, ["begun".to_owned()]).await;
    lines(&begun, 1).await;
    // Seven requests of the first stand when it is told to stop: what they bring is still its own, the rest is not.
    first.stop.cancel();
    let second = worker(world.bus(Role::Admission).await, 1, &log);
    publish(&edge, (0..20).map(|n| n.to_string())).await;
    lines(&log, 13).await;
    release.cancel();
    first.stop().await;
    let begun = begun.lock().unwrap().clone();
    let log = lines(&log, 13).await;
    world.holds(Stream::Commands, 0).await;
    assert_eq!(begun.len() + log.len(), 21, "{begun:?} {log:?}");
    assert!(log.iter().all(|(_, attempt)| *attempt == 1), "nothing had to wait for the ack wait: {log:?}");
    // What comes now goes to the second at once: nothing of the first is left with the broker.
    let sent = Instant::now();
    publish(&edge, (0..20).map(|n| n.to_string())).await;
    world.holds(Stream::Commands, 0).await;
    assert!(sent.elapsed() < Duration::from_secs(3), "{:?}", sent.elapsed());
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_to_which_nothing_finds_its_way_begins_anew_at_another_inbox_and_is_counted() {
    let world = World::new().await;
    let edge = world.bus(Role::Edge).await;
    let proxy = Proxy::before_broker(world.broker.port()).await;
    let bus = connect(proxy.nats_url(), Role::Admission).await;
    let log = log();
    // The broker never hears of the inbox of the loop.
    proxy.drop_messages(Direction::ToServer, &format!("{}.pull.", bus.inbox().prefix()), 1);
    let worker = worker(bus.clone(), 2, &log);
    proxy.dropped(1).await;
    assert_eq!(stalls(&bus), 0.0);
    let sent = Instant::now();
    publish(&edge, (0..10).map(|n| n.to_string())).await;
    lines(&log, 10).await;
    world.holds(Stream::Commands, 0).await;
    assert_eq!(stalls(&bus), 1.0);
    assert!(sent.elapsed() < Duration::from_secs(20), "{:?}", sent.elapsed());
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_replica_does_not_understand_is_taken_by_one_that_does_and_counted() {
    let world = World::new().await;
    let edge = world.bus(Role::Edge).await;
    let (old, log) = (world.bus(Role::Admission).await, log());
    let stranger = Running::start({
        let bus = old.clone();
        move |stop| async move {
            let handler = |delivery: Delivery| delivery.not_understood("of a later version");
            pull::run(&bus, Consumer::Commands, 1, stop, handler).await.unwrap();
        }
    });
    publish(&edge, ["x".to_owned()]).await;
    eventually(LONG, "it was seen", || async {
        metric(&old, "broker_not_understood_total{consumer=\"admission-commands\"}") >= 1.0
    })
    .await;
    let newer = worker(world.bus(Role::Admission).await, 1, &log);
    let lines = lines(&log, 1).await;
    assert!(lines[0].0 == "x" && lines[0].1 > 1, "{lines:?}");
    world.holds(Stream::Commands, 0).await;
    stranger.stop().await;
    newer.stop().await;
}

fn stalls(bus: &Bus) -> f64 {
    metric(bus, "broker_stalls_total{consumer=\"admission-commands\"}")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inbox_for_the_answer_travels_with_the_message() {
    let world = World::new().await;
    let edge = world.bus(Role::Edge).await;
    let log = log();
    let bus = world.bus(Role::Admission).await;
    let worker = Running::start({
        let log = Arc::clone(&log);
        move |stop| async move {
            let handler = |delivery: Delivery| {
                let log = Arc::clone(&log);
                async move {
                    log.lock().unwrap().push((delivery.subject().to_owned(), delivery.reply().map(str::to_owned)));
                    delivery.ack().await;
                }
            };
            pull::run(&bus, Consumer::Commands, 1, stop, handler).await.unwrap();
        }
    });
    edge.enqueue(SUBJECT, "x".into(), Some("_INBOX_edge.p.answer.c")).await.unwrap();
    edge.enqueue(SUBJECT, "y".into(), None).await.unwrap();
    let subject = SUBJECT.to_owned();
    assert_eq!(lines(&log, 2).await, [(subject.clone(), Some("_INBOX_edge.p.answer.c".to_owned())), (subject, None)]);
    worker.stop().await;
}
