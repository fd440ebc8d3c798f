//! What may be settled with others.

use roadstead_proto::api::v1::{ConfigUpdateOperationState as State, PolicyStatus, ProviderMutationKind, SandboxPhase};
use roadstead_store::liveness::ProcessKind;
use roadstead_store::mutation::Write;
use roadstead_store::row::{self, Completion};
use uuid::Uuid;

use crate::completion::receipt;
use crate::liveness::{age, with_session};
use crate::world::{World, by_id, command, next, now, policy};

#[tokio::test]
async fn only_sandboxes_of_which_nothing_is_open_and_that_nobody_is_at_work_on_are_taken_together() {
    let mut world = World::new().await;
    let w = world.workspace("w").await;
    let p = world.provider(&w, "p").await;
    let (judge, alive, gone) = (world.store.process_id(), Uuid::new_v4(), Uuid::new_v4());
    let mut ids = Vec::new();
    for (name, bridge, current, latest, status, operation) in [
        ("free", alive, 1, 1, PolicyStatus::Loaded, State::Applied),
        ("its owner is gone", gone, 1, 1, PolicyStatus::Loaded, State::Applied),
        ("a revision is above the current one", alive, 1, 2, PolicyStatus::Superseded, State::Applied),
        ("a revision waits", alive, 1, 1, PolicyStatus::Pending, State::Applied),
        ("a revision failed", alive, 1, 1, PolicyStatus::Failed, State::Applied),
        ("an operation is pending", alive, 1, 1, PolicyStatus::Loaded, State::Pending),
        ("it is being changed", alive, 1, 1, PolicyStatus::Loaded, State::Applied),
    ] {
        let row = with_session(&world, &w, name, bridge).await;
        let revisions = (1..=latest).map(|version| {
            let status = if version == latest { status } else { PolicyStatus::Loaded };
            Write::InsertPolicyRevision(row::PolicyRevision { status, ..policy(Some(row.id), version) })
        });
        let at = Some(now()).filter(|_| operation != State::Pending);
        let completion = Completion { state: operation, at, ..Completion::pending() };
        let receipt = row::ProviderReceipt { completion, ..receipt(ProviderMutationKind::Update, &row, &p) };
        let row = next(&row, |row| row.current_policy_version = current);
        let writes = [Write::UpdateSandbox(row.clone()), Write::InsertReceipts(vec![receipt])];
        world.write(revisions.chain(writes).collect()).await;
        ids.push(row.id);
    }
    world.store.renew(ProcessKind::Admission, judge).await.unwrap();
    age(&mut world, judge, 0, 60).await;
    age(&mut world, gone, 60, 90).await;
    let busy = world.first(&command(), &by_id(ids[6])).await.unwrap();

    let batch = world.store.nothing_open(&ids, "00-trace").await.unwrap();
    assert_eq!(batch.sandboxes.iter().map(|row| row.id).collect::<Vec<_>>(), [ids[0]]);
    busy.abandon().await;
    // What is written is published as the change of whoever was named.
    let write = Write::UpdateSandbox(next(&batch.sandboxes[0], |row| row.phase = SandboxPhase::Provisioning));
    let marks = batch.conclude(vec![write]).await.unwrap();
    let traced = marks.iter().map(|mark| (mark.mark.object_id, mark.traceparent.as_str()));
    assert_eq!(traced.collect::<Vec<_>>(), [(ids[0], "00-trace")]);
}
