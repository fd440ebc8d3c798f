//! What a lost broker or another database leaves behind is repaired.

use roadstead_bus::topology;
use roadstead_proto::internal::{SnapshotEntry, read_reply::Outcome as Answer};
use roadstead_store::mutation::Write;
use roadstead_testkit::eventually;
use tonic::Code;

use crate::world::{LONG, World, binding, code};

fn version(entry: &SnapshotEntry) -> u32 {
    entry.config.as_ref().unwrap().version
}

/// Admission's part: the topology is made again.
async fn remake(world: &World) {
    eventually(LONG, "the topology is made", || async { topology::ensure(&world.admission, 1).await }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_broker_lost_everything_all_entries_come_back_newer_than_before() {
    let mut world = World::new().await;
    let workspace = world.workspace("w").await;
    let mut before = Vec::new();
    for name in ["a", "b", "c"] {
        let sandbox = world.sandbox(&workspace, name, &[]).await;
        before.push((sandbox.id, world.entry_where(sandbox.id, "its entry", |_| true).await.0));
    }
    world.idle().await;
    world.broker.wipe().await;
    remake(&world).await;
    for (id, old) in before {
        let rises = |entry: &SnapshotEntry| entry.sequence > old.sequence && entry.config == old.config;
        world.entry_where(id, "the entry comes back", rises).await;
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_cannot_be_built_after_a_loss_has_no_other_written_again_and_again() {
    let mut world = World::new().await;
    let workspace = world.workspace("w").await;
    let sound = world.sandbox(&workspace, "sound", &[]).await;
    let provider = world.provider(&workspace, "p", "s3cret").await;
    let broken = world.sandbox(&workspace, "broken", &[&provider]).await;
    world.entry_where(broken.id, "its entry", |_| true).await;
    let (old, _) = world.entry_where(sound.id, "its entry", |_| true).await;
    world.idle().await;
    let mut sql = world.sql().await;
    sql.run(r"update roadstead.provider set credential_values = array['\x00'::bytea]").await;
    world.broker.wipe().await;
    remake(&world).await;
    let newer = |entry: &SnapshotEntry| entry.sequence > old.sequence;
    let written = world.entry_where(sound.id, "the entry comes back", newer).await;

    // No mark is left: what draws is the sweep, three numbers at most for an attempt.
    let sequence = written.0.sequence;
    let drawn = tokio::sync::Mutex::new(sql);
    eventually(LONG, "it was tried twice more", async || {
        let newest = drawn.lock().await.value("select last_value from roadstead.snapshot_sequence").await;
        (newest.parse::<u64>().unwrap() >= sequence + 5).then_some(())
    })
    .await;
    assert_eq!(world.entry(sound.id).await.unwrap(), written);
    assert!(world.entry(broken.id).await.is_none());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_rollback_of_the_broker_the_entries_show_what_was_committed() {
    let mut world = World::new().await;
    let workspace = world.workspace("w").await;
    let kept = world.sandbox(&workspace, "kept", &[]).await;
    let gone = world.sandbox(&workspace, "gone", &[]).await;
    world.entry_where(kept.id, "its entry", |_| true).await;
    world.entry_where(gone.id, "its entry", |_| true).await;
    world.idle().await;
    let folder = tempfile::tempdir().unwrap();
    world.broker.save(&folder.path().join("saved")).await;
    remake(&world).await;

    let mut newest = 0;
    for version in 1..=3 {
        world.policy(Some(kept.id), version, binding(&[])).await;
        let shown = world.entry_where(kept.id, "the policy", |entry| self::version(entry) == version).await;
        newest = shown.0.sequence;
    }
    world.write(vec![Write::DeleteSandbox(gone.id)]).await;
    eventually(LONG, "its entry is gone", || async { world.entry(gone.id).await.is_none() }).await;
    world.idle().await;

    world.broker.roll_back(&folder.path().join("saved")).await;
    remake(&world).await;
    let repaired = |entry: &SnapshotEntry| version(entry) == 3 && entry.sequence > newest;
    world.entry_where(kept.id, "the last commit again", repaired).await;
    eventually(LONG, "what was deleted is gone again", || async {
        let answered = world.entry(kept.id).await.is_some();
        answered && world.entry(gone.id).await.is_none()
    })
    .await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mere_restart_of_the_broker_rewrites_nothing() {
    let mut world = World::new().await;
    let workspace = world.workspace("w").await;
    let sandbox = world.sandbox(&workspace, "box", &[]).await;
    let before = world.entry_where(sandbox.id, "its entry", |_| true).await;
    world.idle().await;
    world.broker.restart().await;
    let later = world.sandbox(&workspace, "later", &[]).await;
    world.entry_where(later.id, "the role works again", |_| true).await;
    assert_eq!(world.entry(sandbox.id).await.unwrap(), before);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raised_epoch_is_written_and_a_database_of_an_older_one_is_not_believed() {
    let world = World::new().await;
    let workspace = world.workspace("w").await;
    let sandbox = world.sandbox(&workspace, "box", &[]).await;
    let (old, _) = world.entry_where(sandbox.id, "its entry", |_| true).await;
    let mut sql = world.sql().await;
    sql.run("update roadstead.epoch set value = value + 1").await;
    assert!(matches!(world.bootstrap(&sandbox).await, Answer::Response(_)));
    let (new, revision) = world.entry(sandbox.id).await.unwrap();
    assert_eq!((new.epoch, new.config), (old.epoch + 1, old.config));

    sql.run("update roadstead.epoch set value = value - 1").await;
    world.policy(Some(sandbox.id), 1, binding(&[])).await;
    assert_eq!(code(world.bootstrap(&sandbox).await), Code::Unavailable);
    assert_eq!(world.entry(sandbox.id).await.unwrap().1, revision);
    world.stop().await;
}
