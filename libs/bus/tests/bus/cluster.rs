//! Three brokers with three copies of everything: what differs from one.

use std::net::TcpListener;

use bytes::Bytes;
use roadstead_bus::activity::{Feed, Limit, News, ReadError, Reader, Subjects};
use roadstead_bus::bucket::{Bucket, Revision, UpdateError};
use roadstead_bus::permissions::{Auth, limits_and_users};
use roadstead_bus::topology;
use roadstead_proto::activity::{Activity, Kind};
use roadstead_proto::bucket::Bucket as Name;
use roadstead_proto::role::Role;
use roadstead_testkit::{Broker, eventually};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::world::{LONG, bus};

async fn cluster() -> [Broker; 3] {
    // Held together, so that three different ports are drawn.
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let ports = listeners.map(|listener| listener.local_addr().unwrap().port());
    let routes = ports.map(|port| format!("nats://127.0.0.1:{port}")).join(", ");
    let configs = ports.map(|port| {
        let limits = limits_and_users(&Auth::Open);
        format!("{limits}\ncluster {{ name: three, listen: \"127.0.0.1:{port}\", routes: [{routes}] }}\n")
    });
    let [a, b, c] = &configs;
    tokio::join!(Broker::start(a), Broker::start(b), Broker::start(c)).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn conflicts_are_known_as_such_and_each_race_has_one_winner() {
    let brokers = cluster().await;
    let admission = bus(&brokers[0], Role::Admission).await;
    eventually(LONG * 2, "the topology", || topology::ensure(&admission, 3)).await;
    let mut buckets = Vec::new();
    for broker in &brokers {
        buckets.push(Bucket::new(&bus(broker, Role::Watch).await, Name::Rights));
    }
    eventually(LONG, "the bucket has a leader", || buckets[1].read_from_leader("a")).await;

    let mut revision = Revision::NONE;
    for round in 0..30 {
        let mut racers = JoinSet::new();
        for racer in 0..12 {
            let bucket = buckets[racer % 3].clone();
            racers.spawn(async move { bucket.update("a", Bytes::from(format!("{round} {racer}")), revision).await });
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
