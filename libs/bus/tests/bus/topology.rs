use roadstead_bus::permissions::{Auth, limits_and_users};
use roadstead_bus::topology::{self, Part};
use roadstead_proto::bucket::Bucket;
use roadstead_proto::role::Role;
use roadstead_proto::stream::{Consumer, Stream};
use roadstead_testkit::Broker;

use crate::world::{self, LONG, World, keep_topology};

fn everything() -> Vec<Part> {
    let streams = Stream::ALL.into_iter().map(Part::Stream);
    let consumers = Consumer::ALL.into_iter().map(Part::Consumer);
    streams.chain(consumers).chain(Bucket::ALL.into_iter().map(Part::Bucket)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn several_admissions_make_the_topology_at_once_and_again() {
    let broker = Broker::start(&limits_and_users(&Auth::Open)).await;
    let (first, second) = (world::bus(&broker, Role::Admission).await, world::bus(&broker, Role::Admission).await);
    // The loser of a race may be told so; it finds everything as it should be when it looks again.
    let (_first, _second) = tokio::join!(topology::ensure(&first, 1), topology::ensure(&second, 1));
    topology::ensure(&first, 1).await.unwrap();
    topology::ensure(&second, 1).await.unwrap();
    tokio::time::timeout(LONG, topology::wait(&first, &everything())).await.unwrap();
}

#[tokio::test]
async fn ensuring_again_keeps_what_is_stored() {
    let world = World::new().await;
    let edge = world.bus(Role::Edge).await;
    edge.enqueue("roadstead.command.CreateSandbox", "1".into(), None).await.unwrap();
    topology::ensure(&world.admission, 1).await.unwrap();
    assert_eq!(world.held(Stream::Commands).await, 1);
}

#[tokio::test]
async fn others_wait_until_admission_has_made_it() {
    let broker = Broker::start(&limits_and_users(&Auth::Open)).await;
    let watch = world::bus(&broker, Role::Watch).await;
    let waiting = tokio::spawn(async move { topology::wait(&watch, &everything()).await });
    let admission = world::bus(&broker, Role::Admission).await;
    assert!(!waiting.is_finished());
    let keeper = keep_topology(&admission);
    tokio::time::timeout(LONG, waiting).await.unwrap().unwrap();
    keeper.stop().await;
}

#[tokio::test]
async fn a_wiped_broker_gets_its_topology_back() {
    let mut world = World::new().await;
    let keeper = keep_topology(&world.admission);
    let watch = world.bus(Role::Watch).await;
    world.broker.wipe().await;
    tokio::time::timeout(LONG, topology::wait(&watch, &everything())).await.unwrap();
    keeper.stop().await;
}
