//! Three brokers with three copies of everything: what differs from one.

use std::time::Duration;

use bytes::Bytes;
use roadstead_bus::activity::{Feed, Limit, News, ReadError, Reader, Subjects};
use roadstead_bus::bucket::{Bucket, Revision, UpdateError};
use roadstead_bus::permissions::{Auth, limits_and_users};
use roadstead_bus::topology;
use roadstead_proto::activity::{Activity, Kind};
use roadstead_proto::bucket::Bucket as Name;
use roadstead_proto::role::Role;
use roadstead_testkit::{Broker, eventually, soak};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::world::{LONG, bus};

async fn cluster() -> [Broker; 3] {
    let mut brokers = Broker::prepare_cluster(3, &limits_and_users(&Auth::Open)).try_into().unwrap();
    let [a, b, c]: &mut [Broker; 3] = &mut brokers;
    tokio::join!(a.resume(), b.resume(), c.resume());
    brokers
}

/// A bucket as seen at each of `copies` brokers that keep as many copies of it, while each of them has a beat written there
/// a hundred times a second: those brokers, the bucket at each, and what writes.
async fn beaten(copies: usize) -> (Vec<Broker>, Vec<Bucket>, JoinSet<()>) {
    let config = limits_and_users(&Auth::Open);
    let mut brokers =
        if copies == 1 { vec![Broker::prepare(&config)] } else { Broker::prepare_cluster(copies, &config) };
    for broker in &mut brokers {
        broker.resume().await;
    }
    let admission = bus(&brokers[0], Role::Admission).await;
    eventually(LONG * 2, "the topology", || topology::ensure(&admission, copies)).await;
    let (mut buckets, mut beats) = (Vec::new(), JoinSet::new());
    for (number, broker) in brokers.iter().enumerate() {
        let bucket = Bucket::new(&bus(broker, Role::Watch).await, Name::Rights);
        eventually(LONG, "the bucket has a leader", || bucket.read_from_leader("a")).await;
        buckets.push(bucket.clone());
        beats.spawn(async move {
            loop {
                // One that is not stored is followed by another.
                let _late = bucket.put_with_ttl(&format!("beat.{number}"), Bytes::new(), LONG).await;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
    }
    (brokers, buckets, beats)
}

/// A race of twelve for one key: all but one are told of the conflict, whatever they wanted.
async fn conflicts_are_known(copies: usize) {
    let (_brokers, buckets, _beats) = beaten(copies).await;
    let mut revision = Revision::NONE;
    for round in 0..soak::count(30) {
        let mut racers = JoinSet::new();
        for racer in 0..12 {
            let bucket = buckets[racer % copies].clone();
            racers.spawn(async move {
                let value = Bytes::from(format!("{round} {racer}"));
                match racer % 3 {
                    0 => bucket.update("a", value, revision).await,
                    1 => bucket.update_with_ttl("a", value, revision, LONG).await,
                    _ => bucket.purge("a", revision).await,
                }
            });
        }
        let mut winners = Vec::new();
        while let Some(end) = racers.join_next().await {
            match end.unwrap() {
                Ok(revision) => winners.push(revision),
                Err(UpdateError::Conflict) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        assert_eq!(winners.len(), 1, "round {round}");
        revision = winners[0];
        // The leader's word is never behind an ack, whichever broker is asked.
        for bucket in &buckets {
            assert_eq!(bucket.read_from_leader("a").await.unwrap().revision, revision);
        }
    }
    // Who is alone is told of none, however much is written beside.
    let mut revision = Revision::NONE;
    for turn in 0..soak::count(200) {
        let written = buckets[turn as usize % copies].update("alone", Bytes::new(), revision).await;
        revision = written.unwrap_or_else(|error| panic!("turn {turn}: {error:?}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conflicts_are_known_as_such_and_each_race_has_one_winner() {
    conflicts_are_known(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conflicts_are_known_as_such_and_each_race_has_one_winner_with_three_copies() {
    conflicts_are_known(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_read_whole_and_in_order_at_every_broker_while_they_are_written_and_one_dies() {
    const LINES: u64 = 300;
    let mut brokers = cluster().await;
    let admission = bus(&brokers[0], Role::Admission).await;
    eventually(LONG * 2, "the topology", || topology::ensure(&admission, 3)).await;
    let (sandbox_id, kind) = (Uuid::from_u128(1), Kind::Log);
    let (of, subject) = (Subjects { sandbox_id, kind: Some(kind) }, Activity { sandbox_id, kind }.to_string());
    let mut readers = Vec::new();
    for broker in &brokers {
        readers.push(Reader::new(&bus(broker, Role::Edge).await));
    }
    let mut feed = Feed::follow(&bus(&brokers[2], Role::Edge).await).await.unwrap();
    let life = readers[1].state().await.unwrap().incarnation;
    for number in 1..=LINES {
        admission.enqueue(subject.as_str(), Bytes::from(number.to_string()), None).await.unwrap();
        // A page may come from a broker that is behind; with the leader's word for what follows it, nothing is missed.
        if number % 50 == 0 {
            for reader in &readers {
                assert_eq!(sequences(reader, of).await, (1..=number).collect::<Vec<_>>());
            }
        }
    }
    let mut told = Vec::new();
    while told.len() < LINES as usize {
        match tokio::time::timeout(LONG, feed.next()).await.expect("the feed goes on").unwrap() {
            News::Stored { line, before } => {
                assert_eq!(before, line.sequence - 1);
                told.push(line.sequence);
            }
            News::Gap => panic!("nothing was lost"),
        }
    }
    assert_eq!(told, (1..=LINES).collect::<Vec<_>>());

    brokers[0].kill().await;
    let writer = bus(&brokers[1], Role::Admission).await;
    eventually(LONG, "there is a leader", || writer.enqueue(subject.as_str(), "after".into(), None)).await;
    for reader in &readers[1..] {
        // One whose ack was lost may be there twice.
        let now = eventually(LONG, "the lines are read", async || {
            reader.state().await?;
            Ok::<_, ReadError>(sequences(reader, of).await)
        })
        .await;
        assert!(now.len() as u64 > LINES && now.is_sorted(), "{now:?}");
        assert_eq!(reader.state().await.unwrap().incarnation, life, "cursors hold");
    }
}

/// All sequences, as a stream of lines reads them: pages of any replica, and the leader's word for what follows.
async fn sequences(reader: &Reader, of: Subjects) -> Vec<u64> {
    let mut sequences = Vec::<u64>::new();
    loop {
        let from = sequences.last().map_or(1, |last| last + 1);
        let limit = Limit { lines: 100, bytes: 1024 * 1024 };
        let page = reader.page(of, from, limit).await.unwrap();
        sequences.extend(page.lines.iter().map(|line| line.sequence));
        let next = sequences.last().map_or(1, |last| last + 1);
        match reader.first(of, next).await.unwrap() {
            Some(line) => sequences.push(line.sequence),
            None => return sequences,
        }
    }
}
