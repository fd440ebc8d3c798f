use roadstead_proto::api::v1::SandboxPhase;
use roadstead_proto::role::Role;
use roadstead_store::FlightError;
use roadstead_store::liveness::ProcessKind;
use roadstead_store::mutation::{Locks, Reads, SessionOwner, Write};
use roadstead_store::row;
use uuid::Uuid;

use crate::world::{World, by_id, command, next, sandbox, session};

/// Makes the process's row as if it had renewed last so many seconds ago, without a gap for so many before now.
pub(crate) async fn age(world: &mut World, id: Uuid, renewed: u32, since: u32) {
    let sql = format!(
        "update roadstead.process set renewed_at = clock_timestamp() - interval '{renewed} seconds', \
         since = clock_timestamp() - interval '{since} seconds' where id = '{id}'"
    );
    world.sql.run(&sql).await;
}

/// A sandbox with a session on a bridge, and that bridge renewed.
pub(crate) async fn with_session(world: &World, w: &row::Workspace, name: &str, bridge: Uuid) -> row::Sandbox {
    let row = row::Sandbox { session: Some(session(bridge)), phase: SandboxPhase::Ready, ..sandbox(w, name) };
    world.write(vec![Write::InsertSandbox(row.clone())]).await;
    row
}

async fn judged(world: &World, id: Uuid) -> Option<SessionOwner> {
    let locks = Locks { reads: Reads { session_owner: true, ..Reads::default() }, ..by_id(id) };
    let in_flight = world.first(&command(), &locks).await.unwrap();
    let owner = in_flight.loaded().session_owner;
    in_flight.abandon().await;
    owner
}

#[tokio::test]
async fn only_a_judge_that_was_awake_all_along_judges_a_bridge_that_was_not() {
    let mut world = World::new().await;
    let w = world.workspace("w").await;
    let (judge, bridge) = (world.store.process_id(), Uuid::new_v4());
    let row = with_session(&world, &w, "s", bridge).await;
    let alone = world.sandbox(&w, "alone").await;
    let standing = world.role(Role::ConfigSnapshot).standing(row.id).await.unwrap().unwrap();
    let held = row.session.as_ref().map(|held| (held.id, held.bridge_id));
    assert_eq!((standing.generation, standing.session_id.zip(standing.bridge_id)), (row.generation, held));
    // Without a row of its own it judges nobody.
    age(&mut world, bridge, 60, 60).await;
    assert_eq!(judged(&world, row.id).await, Some(SessionOwner::Alive));
    world.store.renew(ProcessKind::Admission, judge).await.unwrap();
    let cases = [
        // Judge renewed, judge's since, bridge renewed.
        (0, 60, 0, false),
        (0, 60, 19, false),
        (0, 60, 21, true),
        (6, 60, 21, true),
        (8, 60, 21, false),
        (0, 19, 60, false),
        (0, 21, 60, true),
        (30, 60, 60, false),
    ];
    for (renewed, since, bridge_renewed, gone) in cases {
        age(&mut world, judge, renewed, since).await;
        age(&mut world, bridge, bridge_renewed, 90).await;
        let expected = if gone { SessionOwner::Gone } else { SessionOwner::Alive };
        let case = (renewed, since, bridge_renewed);
        assert_eq!(judged(&world, row.id).await, Some(expected), "{case:?}");
        assert_eq!(judged(&world, alone.id).await, Some(SessionOwner::Alive));
        let batch = world.store.lost_sessions(10).await.unwrap();
        assert_eq!(batch.is_some(), gone, "{case:?}");
        if let Some(batch) = batch {
            assert_eq!(batch.sandboxes, std::slice::from_ref(&row));
        }
    }
}

#[tokio::test]
async fn a_gap_begins_a_new_life() {
    let mut world = World::new().await;
    let id = world.store.process_id();
    let since =
        format!("select (extract(epoch from clock_timestamp() - since))::int from roadstead.process where id = '{id}'");
    let first = world.store.renew(ProcessKind::Admission, id).await.unwrap();
    assert!(!first.judged_gone);
    age(&mut world, id, 6, 100).await;
    let second = world.store.renew(ProcessKind::Admission, id).await.unwrap();
    assert!(second.now > first.now);
    assert_eq!(world.sql.value(&since).await, "100");
    age(&mut world, id, 8, 100).await;
    world.store.renew(ProcessKind::Admission, id).await.unwrap();
    assert_eq!(world.sql.value(&since).await, "0");
}

#[tokio::test]
async fn lost_sessions_are_marked_in_batches_and_their_bridge_is_told() {
    let mut world = World::new().await;
    let w = world.workspace("w").await;
    let (judge, bridge, alive) = (world.store.process_id(), Uuid::new_v4(), Uuid::new_v4());
    let mut rows = Vec::new();
    for name in ["a", "b", "c"] {
        rows.push(with_session(&world, &w, name, bridge).await);
    }
    with_session(&world, &w, "fine", alive).await;
    world.store.renew(ProcessKind::Admission, judge).await.unwrap();
    age(&mut world, judge, 0, 60).await;
    age(&mut world, bridge, 60, 90).await;
    // One that is being changed is left out, not waited for.
    let busy = world.first(&command(), &by_id(rows[0].id)).await.unwrap();
    let mut marked = Vec::new();
    while let Some(batch) = world.store.lost_sessions(1).await.unwrap() {
        assert_eq!(batch.sandboxes.len(), 1);
        let lost = batch.sandboxes[0].clone();
        let write = Write::UpdateSandbox(next(&lost, |row| {
            row.session = None;
            row.phase = SandboxPhase::Provisioning;
        }));
        let marks = batch.conclude(vec![write]).await.unwrap();
        assert_eq!(
            marks.iter().map(|mark| (mark.mark.object_id, mark.configuration)).collect::<Vec<_>>(),
            [(lost.id, false)]
        );
        marked.push(lost.id);
    }
    marked.sort_unstable();
    let mut expected = vec![rows[1].id, rows[2].id];
    expected.sort_unstable();
    assert_eq!(marked, expected);
    busy.abandon().await;
    assert!(world.load(rows[0].id).await.unwrap().session.is_some());

    // Told from the first renewal on, for a while; an answer may be lost.
    let renew = async |world: &World| world.store.renew(ProcessKind::Bridge, bridge).await.unwrap().judged_gone;
    assert!(renew(&world).await);
    assert!(renew(&world).await);
    world
        .sql
        .run("update roadstead.process set told_at = told_at - interval '13 seconds' where told_at is not null")
        .await;
    assert!(!renew(&world).await);
    assert!(!renew(&world).await);
    assert!(!world.store.renew(ProcessKind::Bridge, alive).await.unwrap().judged_gone);
}

#[tokio::test]
async fn a_judgement_that_does_not_hold_any_more_marks_nobody() {
    let mut world = World::new().await;
    let w = world.workspace("w").await;
    let (judge, bridge) = (world.store.process_id(), Uuid::new_v4());
    let row = with_session(&world, &w, "s", bridge).await;
    world.store.renew(ProcessKind::Admission, judge).await.unwrap();
    let lost = Write::UpdateSandbox(next(&row, |row| row.session = None));
    for frozen_judge in [true, false] {
        age(&mut world, judge, 0, 60).await;
        age(&mut world, bridge, 60, 90).await;
        let batch = world.store.lost_sessions(10).await.unwrap().unwrap();
        if frozen_judge {
            age(&mut world, judge, 30, 60).await;
        } else {
            world.store.renew(ProcessKind::Bridge, bridge).await.unwrap();
        }
        let refused = batch.conclude(vec![lost.clone()]).await;
        assert!(matches!(refused, Err(FlightError::Guard(_))), "{refused:?}");
        assert_eq!(world.load(row.id).await, Some(row.clone()));
        assert!(!world.store.renew(ProcessKind::Bridge, bridge).await.unwrap().judged_gone);
    }
}

#[tokio::test]
async fn a_registration_gives_its_bridge_a_row() {
    let mut world = World::new().await;
    let w = world.workspace("w").await;
    let bridge = Uuid::new_v4();
    let row = world.sandbox(&w, "s").await;
    world.write(vec![Write::UpdateSandbox(next(&row, |row| row.session = Some(session(bridge))))]).await;
    let known = format!("select kind from roadstead.process where id = '{bridge}'");
    assert_eq!(world.sql.value(&known).await, "1");
    let stored = world.load(row.id).await.unwrap().session.unwrap();
    assert_eq!((stored.connection_epoch, stored.config_push), (u64::MAX, true));
}
