//! A long backlog of marks.

use std::time::{Duration, Instant};

use roadstead_proto::stream::Stream;
use roadstead_testkit::soak;

use crate::flow::subjects;
use crate::world::World;

/// Objects that the marks are about; each has very many.
const OBJECTS: u32 = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_backlog_of_marks_is_published_in_passing_and_leaves_one_message_for_each_object() {
    let mut world = World::with(2, &[]).await;
    world.workspace("w").await;
    // A million in a soak.
    let marks = format!(
        "with object as (select n, gen_random_uuid() id from generate_series(0, {OBJECTS} - 1) n)
         insert into roadstead.outbox (transaction_id, kind, workspace_id, object_id, configuration, created_at)
         select -m, 'sandbox', w.id, o.id, true, clock_timestamp() - interval '1 minute'
         from roadstead.workspace w, generate_series(1, {}) m join object o on o.n = m % {OBJECTS} where w.name = 'w'",
        soak::count(50_000)
    );
    world.sql.run(&marks).await;
    // Nobody who changes something now waits for that, and is not last in the line either.
    for at in 0..10 {
        let begun = Instant::now();
        world.sandbox("w", &format!("box-{at}")).await;
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }
    world.quiet().await;
    for (stream, prefix) in [(Stream::Changes, "roadstead.change.sandbox."), (Stream::Dirty, "roadstead.dirty.one.")] {
        let held = subjects(&world, stream).await;
        let held: Vec<_> = held.iter().filter(|(subject, _)| subject.starts_with(prefix)).collect();
        assert_eq!(held.len(), OBJECTS as usize + 10, "{stream:?}");
        assert!(held.iter().all(|(_, count)| **count == 1), "{stream:?}");
    }
    world.stop().await;
}
