use roadstead_proto::api::v1::WatchSandboxRequest;
use tonic::Code;

use crate::world::{Shown, World, next, next_line};

#[tokio::test(flavor = "multi_thread")]
async fn open_streams_outlive_a_wiped_broker_say_so_and_old_cursors_are_refused() {
    let mut world = World::start().await;
    let id = world.sandbox("s").await;
    world.log(1, "s", &id, 0..3).await;
    let mut streams =
        [world.watch(1, world.follow("s")).await.unwrap(), world.watch(2, world.follow("s")).await.unwrap()];
    let mut cursor = String::new();
    for stream in &mut streams {
        for expected in 0..3 {
            let (number, at) = next_line(stream).await;
            assert_eq!(number, expected);
            cursor = at;
        }
    }

    world.stack.broker().wipe().await;
    for stream in &mut streams {
        let word = next(stream).await;
        assert!(matches!(&word, Shown::Warning(message) if message.contains("lost")), "{word:?}");
    }
    assert_eq!(world.refused(1, "s", &cursor).await, Code::OutOfRange, "it is of another life");
    world.log(2, "s", &id, 3..5).await;
    for stream in &mut streams {
        assert_eq!((next_line(stream).await.0, next_line(stream).await.0), (3, 4));
    }
    assert_eq!(world.refused(2, "s", &cursor).await, Code::OutOfRange);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_rollback_of_the_broker_no_line_is_shown_twice_and_cursors_of_lost_lines_are_refused() {
    let mut world = World::start().await;
    let id = world.sandbox("s").await;
    world.log(1, "s", &id, 0..3).await;
    let saved = tempfile::tempdir().unwrap();
    world.stack.broker().save(&saved.path().join("store")).await;
    world.log(1, "s", &id, 3..6).await;
    let mut stream = world.watch(1, world.follow("s")).await.unwrap();
    let mut cursors = Vec::new();
    for expected in 0..6 {
        let (number, cursor) = next_line(&mut stream).await;
        assert_eq!(number, expected);
        cursors.push(cursor);
    }

    world.stack.broker().roll_back(&saved.path().join("store")).await;
    assert_eq!(world.refused(2, "s", &cursors[5]).await, Code::OutOfRange, "it is ahead");
    let word = next(&mut stream).await;
    assert!(matches!(&word, Shown::Warning(message) if message.contains("lost")), "{word:?}");
    // Other lines take the places of the lost ones.
    world.log(2, "s", &id, 60..64).await;
    for expected in 60..64 {
        assert_eq!(next_line(&mut stream).await.0, expected);
    }
    assert_eq!(world.refused(2, "s", &cursors[5]).await, Code::OutOfRange, "another line has its place");
    let request = WatchSandboxRequest { resume_after_cursor: cursors[2].clone(), ..world.follow("s") };
    let mut resumed = world.watch(2, request).await.unwrap();
    assert_eq!(next_line(&mut resumed).await.0, 60, "what was kept can be resumed after");
}
