//! The bucket that edges follow.

use roadstead_bus::feed::{Feed, News};
use roadstead_proto::bucket::{Bucket, SandboxKey};
use roadstead_proto::subject::Changed;
use roadstead_store::mutation::Write;

use crate::world::{LONG, World, sandbox};

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_follows_its_row_to_the_end() {
    let world = World::new().await;
    let workspace = world.workspace("team").await;
    let mut row = sandbox(&workspace, "box", &[]);
    world.write(vec![Write::InsertSandbox(row.clone())]).await;
    world.entry_where(&row, "the sandbox is shown", |entry| entry.version == 1 && !entry.gone).await;
    row.resource_version = 2;
    world.write(vec![Write::UpdateSandbox(row.clone())]).await;
    world.entry_where(&row, "its second version is shown", |entry| entry.version == 2).await;
    world.write(vec![Write::DeleteSandbox(row.id)]).await;
    world.entry_where(&row, "it is shown as gone", |entry| entry.gone && entry.sandbox.is_none()).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_sql_cannot_forget_to_tell() {
    let world = World::new().await;
    let workspace = world.workspace("team").await;
    let row = sandbox(&workspace, "box", &[]);
    world.write(vec![Write::InsertSandbox(row.clone())]).await;
    let mut session = world.sql().await;
    session
        .run(&format!(
            "update roadstead.sandbox set phase = 3, resource_version = resource_version + 1 where id = '{}'",
            row.id
        ))
        .await;
    let marks = session.value(&format!("select count(*) from roadstead.outbox where object_id = '{}'", row.id)).await;
    assert_eq!(marks, "2", "one by the insert, one by the update");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_wiped_broker_lost_is_swept_back_and_what_went_meanwhile_is_not() {
    let mut world = World::new().await;
    let workspace = world.workspace("team").await;
    let (stays, goes) = (sandbox(&workspace, "stays", &[]), sandbox(&workspace, "goes", &[]));
    world.write(vec![Write::InsertSandbox(stays.clone()), Write::InsertSandbox(goes.clone())]).await;
    world.entry_where(&goes, "both are shown", |entry| !entry.gone).await;
    world.broker.wipe().await;
    // Their marks are lost with the broker.
    world.write_silently(vec![Write::DeleteSandbox(goes.id)]).await;
    world.make_topology().await;
    world.entry_where(&stays, "it is shown again", |entry| entry.version == 1).await;
    assert!(world.entry(&goes).await.is_none_or(|entry| entry.gone));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_marks_write_nothing_and_beats_go_on() {
    let world = World::new().await;
    let workspace = world.workspace("team").await;
    let row = sandbox(&workspace, "box", &[]);
    world.write(vec![Write::InsertSandbox(row.clone())]).await;
    world.entry_where(&row, "the sandbox is shown", |entry| entry.version == 1).await;
    let mut feed = Feed::follow(&world.edge, Bucket::Sandboxes).await.unwrap();
    let mark = Changed { kind: roadstead_proto::subject::Kind::Sandbox, workspace_id: workspace.id, object_id: row.id };
    for _ in 0..20 {
        world.mark(mark).await;
    }
    let mut beats = 0;
    while beats < 2 {
        let news = tokio::time::timeout(LONG, feed.next()).await.expect("the feed goes on").unwrap();
        let News::Stored(stored) = news else { continue };
        match stored.key.parse::<SandboxKey>().unwrap() {
            SandboxKey::Beat(_) => beats += 1,
            SandboxKey::Sandbox { .. } => panic!("an unchanged entry was written"),
        }
    }
    world.stop().await;
}
