//! What a session outlives.

use std::time::Duration;

use roadstead_supervisor::Behaviour;
use roadstead_testkit::Proxy;
use roadstead_testkit::proxy::Direction;

use crate::shelf::Content;
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn a_session_outlives_an_outage_of_the_broker_and_learns_what_it_missed() {
    let mut world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let (sandbox_id, watched) = world.supervised(&bridge, Behaviour::Apply).await;
    watched.applied(1).await;
    world.broker.stop().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    world.broker.resume().await;
    tokio::time::timeout(crate::world::LONG, world.config_snapshot.connected()).await.unwrap();
    world.shelf.put(sandbox_id, &Content::version(2)).await;
    watched.applied(2).await;
    assert_eq!(watched.supervisor.status().borrow().sessions, 1);
    world.desk.result(|result| result.loaded_version == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_feed_message_is_made_good_by_reading_again() {
    let world = World::new().await;
    let proxy = Proxy::before_broker(world.broker.port()).await;
    let bridge = world.bridge_through(&proxy.nats_url(), &["--reread-seconds=2"]).await;
    let (sandbox_id, watched) = world.supervised(&bridge, Behaviour::Apply).await;
    watched.applied(1).await;
    proxy.drop_messages(Direction::ToClient, "roadstead.feed.snapshots.", 1);
    world.shelf.put(sandbox_id, &Content::version(2)).await;
    proxy.dropped(1).await;
    watched.applied(2).await;
    assert_eq!(watched.versions(), [1, 2]);
}
