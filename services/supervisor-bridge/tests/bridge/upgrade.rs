//! A bridge that is newer than what the broker permits.

use roadstead_proto::bucket::Bucket;

use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_that_may_not_hear_the_projection_is_not_ready_until_it_may() {
    let mut world = World::new().await;
    let permissions = world.permissions.clone();
    let feed = Bucket::Sandboxes.whole_feed();
    assert!(permissions.contains(&feed));
    world.broker.configure(&permissions.replace(&feed, "roadstead.feed.of.before"));
    world.broker.restart().await;
    let bridge = world.starting_bridge(&world.broker.url(), &[]);
    bridge.waits_for("projection").await;

    world.broker.configure(&permissions);
    world.broker.restart().await;
    bridge.ready().await;
}
