//! Three brokers with three copies of everything: what differs from one.

use std::net::TcpListener;

use bytes::Bytes;
use roadstead_bus::bucket::{Bucket, Revision, UpdateError};
use roadstead_bus::permissions::{Auth, limits_and_users};
use roadstead_bus::topology;
use roadstead_proto::bucket::Bucket as Name;
use roadstead_proto::role::Role;
use roadstead_testkit::{Broker, eventually};
use tokio::task::JoinSet;

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
