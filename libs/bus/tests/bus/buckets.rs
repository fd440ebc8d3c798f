use std::time::Duration;

use bytes::Bytes;
use roadstead_bus::bucket::{Bucket, Entry, ReadError, Revision, UpdateError};
use roadstead_proto::bucket::Bucket as Name;
use roadstead_proto::role::Role;
use roadstead_testkit::eventually;
use tokio::task::JoinSet;

use crate::world::{LONG, World, keep_topology};

async fn bucket(world: &World, name: Name) -> Bucket {
    Bucket::new(&world.bus(Role::Watch).await, name)
}

#[tokio::test]
async fn an_update_needs_the_revision_that_stands() {
    let world = World::new().await;
    let bucket = bucket(&world, Name::Rights).await;
    let nothing = Entry { value: None, revision: Revision::NONE };
    assert_eq!(bucket.read_from_leader("a").await.unwrap(), nothing);

    let first = bucket.update("a", "1".into(), Revision::NONE).await.unwrap();
    assert_eq!(bucket.read_from_leader("a").await.unwrap(), Entry { value: Some("1".into()), revision: first });
    let again = bucket.update("a", "x".into(), Revision::NONE).await;
    assert!(matches!(again, Err(UpdateError::Conflict)), "{again:?}");

    let second = bucket.update("a", "2".into(), first).await.unwrap();
    assert!(second > first);
    let stale = bucket.update("a", "x".into(), first).await;
    assert!(matches!(stale, Err(UpdateError::Conflict)), "{stale:?}");
    assert_eq!(bucket.read_from_leader("a").await.unwrap(), Entry { value: Some("2".into()), revision: second });
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_update_one_revision_exactly_one_succeeds() {
    let world = World::new().await;
    let bucket = bucket(&world, Name::Rights).await;
    let mut revision = Revision::NONE;
    for round in 0..20 {
        let mut racers = JoinSet::new();
        for racer in 0..16 {
            let bucket = bucket.clone();
            racers.spawn(async move { bucket.update("a", Bytes::from(format!("{round} {racer}")), revision).await });
        }
        let mut winners = Vec::new();
        while let Some(end) = racers.join_next().await {
            match end.unwrap() {
                Ok(revision) => winners.push(revision),
                Err(UpdateError::Conflict) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(winners.len(), 1, "round {round}");
        revision = winners[0];
    }
}

#[tokio::test]
async fn a_purged_key_is_absent_and_has_the_revision_of_its_mark() {
    let world = World::new().await;
    let bucket = bucket(&world, Name::Sandboxes).await;
    let first = bucket.update("a.b", "1".into(), Revision::NONE).await.unwrap();
    let stale = bucket.purge("a.b", Revision(first.0 + 7)).await;
    assert!(matches!(stale, Err(UpdateError::Conflict)), "{stale:?}");
    let mark = bucket.purge("a.b", first).await.unwrap();
    assert_eq!(bucket.read_from_leader("a.b").await.unwrap(), Entry { value: None, revision: mark });
    let stale = bucket.update("a.b", "2".into(), first).await;
    assert!(matches!(stale, Err(UpdateError::Conflict)), "{stale:?}");
    bucket.update("a.b", "2".into(), mark).await.unwrap();
}

#[tokio::test]
async fn a_value_with_a_time_to_live_runs_out_and_can_be_written_again() {
    let world = World::new().await;
    let bucket = bucket(&world, Name::Rights).await;
    let ttl = Duration::from_secs(1);
    let first = bucket.update_with_ttl("a", "1".into(), Revision::NONE, ttl).await.unwrap();
    bucket.put_with_ttl("beat", "1".into(), ttl).await.unwrap();
    bucket.put_with_ttl("beat", "2".into(), ttl).await.unwrap();
    let gone = eventually(LONG, "both ran out", || async {
        let (a, beat) = (bucket.read_from_leader("a").await.unwrap(), bucket.read_from_leader("beat").await.unwrap());
        (a.value.is_none() && beat.value.is_none()).then_some(a)
    })
    .await;
    assert!(gone.revision > first, "the end left a mark");
    bucket.update_with_ttl("a", "2".into(), gone.revision, ttl).await.unwrap();
    eventually(LONG, "the second ran out too", || async {
        bucket.read_from_leader("a").await.unwrap().value.is_none()
    })
    .await;
}

#[tokio::test]
async fn the_largest_value_makes_the_round_trip_and_a_larger_one_is_refused() {
    let world = World::new().await;
    let bucket = bucket(&world, Name::Snapshots).await;
    let largest = Bytes::from(vec![0xA5; 3 * 1024 * 1024]);
    let revision = bucket.update("a", largest.clone(), Revision::NONE).await.unwrap();
    assert_eq!(bucket.read_from_leader("a").await.unwrap().value, Some(largest));
    for size in [Name::Snapshots.max_value().unsigned_abs() as usize + 1, 5 * 1024 * 1024] {
        let refused = bucket.update("a", Bytes::from(vec![0; size]), revision).await;
        assert!(matches!(refused, Err(UpdateError::Unstorable(_))), "{refused:?}");
    }
}

#[tokio::test]
async fn all_keys_are_listed_by_pages_without_those_of_other_buckets() {
    let world = World::new().await;
    let (rights, sandboxes) = (bucket(&world, Name::Rights).await, bucket(&world, Name::Sandboxes).await);
    sandboxes.update("other.key", "1".into(), Revision::NONE).await.unwrap();
    let mut expected = Vec::new();
    for n in 0..50 {
        let key = format!("key-{n:02}");
        rights.update(&key, "1".into(), Revision::NONE).await.unwrap();
        expected.push(key);
    }
    assert_eq!(rights.keys(0).await.unwrap(), expected);
    assert_eq!(rights.keys(45).await.unwrap(), expected[45..]);
    assert_eq!(rights.keys(50).await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn a_missing_bucket_is_told_and_made_again() {
    let world = World::new().await;
    let bucket = Bucket::new(&world.admission, Name::Rights);
    let before = bucket.incarnation().await.unwrap();
    let keeper = keep_topology(&world.admission);
    world.store().await.delete_stream(Name::Rights.stream()).await.unwrap();
    let read = bucket.read_from_leader("a").await;
    // The keeper may have been quicker.
    assert!(matches!(read, Err(ReadError::Missing) | Ok(_)), "{read:?}");
    eventually(LONG, "the bucket is there again", || bucket.update("a", "1".into(), Revision::NONE)).await;
    let after = bucket.incarnation().await.unwrap();
    assert_ne!(before.created, after.created);
    assert_eq!(after.last, Revision(1));
    keeper.stop().await;
}

#[tokio::test]
async fn without_a_broker_a_write_is_unknown_and_a_read_unavailable() {
    let mut world = World::new().await;
    let bucket = bucket(&world, Name::Rights).await;
    world.broker.stop().await;
    let (read, write) = tokio::join!(bucket.read_from_leader("a"), bucket.update("a", "1".into(), Revision::NONE));
    assert!(matches!(read, Err(ReadError::Unavailable)), "{read:?}");
    assert!(matches!(write, Err(UpdateError::Unknown)), "{write:?}");
}
