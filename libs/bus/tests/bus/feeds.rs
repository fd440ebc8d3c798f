use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use roadstead_bus::bucket::{Bucket, Revision};
use roadstead_bus::feed::{Feed, KeyFollower, News, Stored};
use roadstead_proto::bucket::Bucket as Name;
use roadstead_proto::role::Role;

use crate::world::{LONG, World};

async fn news(feed: &mut Feed) -> News {
    tokio::time::timeout(LONG, feed.next()).await.expect("no news").unwrap()
}

async fn key_news(follower: &mut KeyFollower) -> News {
    tokio::time::timeout(LONG, follower.next()).await.expect("no news").unwrap()
}

fn stored(key: &str, value: &'static str, revision: Revision) -> News {
    News::Stored(Stored { key: key.into(), value: Some(value.into()), revision })
}

fn gone(key: &str, revision: Revision) -> News {
    News::Stored(Stored { key: key.into(), value: None, revision })
}

#[tokio::test]
async fn a_feed_tells_what_was_stored_and_nothing_that_was_refused() {
    let world = World::new().await;
    let bucket = Bucket::new(&world.bus(Role::Watch).await, Name::Sandboxes);
    let edge = world.bus(Role::Edge).await;
    let mut feed = Feed::follow(&edge, Name::Sandboxes).await.unwrap();
    let mut follower = KeyFollower::follow(&edge, Name::Sandboxes, "w.a").await.unwrap();

    let one = bucket.update("w.a", "1".into(), Revision::NONE).await.unwrap();
    for expected in [Revision::NONE, Revision(one.0 + 5)] {
        bucket.update("w.a", "refused".into(), expected).await.unwrap_err();
        bucket.purge("w.a", Revision(one.0 + 5)).await.unwrap_err();
    }
    let two = bucket.update("w.a", "2".into(), one).await.unwrap();
    let other = bucket.update("w.b", "x".into(), Revision::NONE).await.unwrap();
    let end = bucket.purge("w.a", two).await.unwrap();

    let expected = [stored("w.a", "1", one), stored("w.a", "2", two), stored("w.b", "x", other), gone("w.a", end)];
    for expected in &expected {
        assert_eq!(news(&mut feed).await, *expected);
    }
    for expected in [&expected[0], &expected[1], &expected[3]] {
        assert_eq!(key_news(&mut follower).await, *expected);
    }
}

#[tokio::test]
async fn a_value_that_runs_out_is_told_in_order() {
    let world = World::new().await;
    let bucket = Bucket::new(&world.bus(Role::Watch).await, Name::Rights);
    let mut feed = Feed::follow(&world.bus(Role::Edge).await, Name::Rights).await.unwrap();
    let first = bucket.put_with_ttl("beat.a", "1".into(), Duration::from_secs(1)).await.unwrap();
    assert_eq!(news(&mut feed).await, stored("beat.a", "1", first));
    assert_eq!(news(&mut feed).await, gone("beat.a", Revision(first.0 + 1)));
    let next = bucket.update("a", "1".into(), Revision::NONE).await.unwrap();
    assert_eq!(news(&mut feed).await, stored("a", "1", next));
}

#[tokio::test]
async fn a_lost_feed_message_is_told_as_a_gap_before_the_next_entry() {
    let world = World::new().await;
    let bus = world.bus(Role::Watch).await;
    let bucket = Bucket::new(&bus, Name::Rights);
    let mut feed = Feed::follow(&bus, Name::Rights).await.unwrap();
    let one = bucket.update("a", "1".into(), Revision::NONE).await.unwrap();
    assert_eq!(news(&mut feed).await, stored("a", "1", one));

    // To the feed, a message two revisions on is one whose predecessor was lost.
    let later = Revision(one.0 + 2);
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Sequence", later.0.to_string());
    let client = async_nats::connect(world.broker.url()).await.unwrap();
    client.publish_with_headers(Name::Rights.feed("a"), headers, Bytes::from("3")).await.unwrap();
    assert_eq!(news(&mut feed).await, News::Gap);
    assert_eq!(news(&mut feed).await, stored("a", "3", later));
}

#[tokio::test]
async fn after_a_reconnect_both_kinds_of_followers_tell_of_a_gap() {
    let mut world = World::new().await;
    let bus = world.bus(Role::Watch).await;
    let bucket = Bucket::new(&bus, Name::Rights);
    let mut feed = Feed::follow(&bus, Name::Rights).await.unwrap();
    let mut follower = KeyFollower::follow(&bus, Name::Rights, "a").await.unwrap();
    let one = bucket.update("a", "1".into(), Revision::NONE).await.unwrap();
    assert_eq!(news(&mut feed).await, stored("a", "1", one));
    assert_eq!(key_news(&mut follower).await, stored("a", "1", one));

    world.broker.kill().await;
    world.broker.resume().await;
    assert_eq!(key_news(&mut follower).await, News::Gap);
    let two = bucket.update("a", "2".into(), one).await.unwrap();
    assert_eq!(news(&mut feed).await, News::Gap);
    assert_eq!(news(&mut feed).await, stored("a", "2", two));
    assert_eq!(key_news(&mut follower).await, stored("a", "2", two));
    let three = bucket.update("a", "3".into(), two).await.unwrap();
    assert_eq!(news(&mut feed).await, stored("a", "3", three));
}
