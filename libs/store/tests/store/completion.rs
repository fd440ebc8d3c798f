//! How operations behind receipts end by what becomes of their sandbox and provider, and that they end once.

use roadstead_proto::api::v1::{
    ConfigApplyOutcome, ConfigUpdateOperationState as State, ProviderMutationKind as Kind, SandboxPhase,
};
use roadstead_store::mutation::Write;
use roadstead_store::row::{self, Completion};
use uuid::Uuid;

use crate::world::{World, next, now};

pub(crate) fn receipt(kind: Kind, s: &row::Sandbox, p: &row::Provider) -> row::ProviderReceipt {
    row::ProviderReceipt {
        id: Uuid::now_v7(),
        sandbox_id: s.id,
        mutation_id: Uuid::now_v7(),
        kind,
        provider_id: p.id,
        provider_name: p.name.clone(),
        provider_version: p.resource_version,
        attachment_epoch: s.attachment_epoch,
        persisted_at: now(),
        completion: Completion::pending(),
    }
}

async fn kept(world: &World, receipt: &row::ProviderReceipt) -> Completion {
    let found = world.store.readiness(receipt.sandbox_id, Some(receipt.id)).await.unwrap();
    found.receipt.unwrap().completion
}

#[tokio::test]
async fn what_is_pending_ends_with_what_it_is_about_and_only_then() {
    let world = World::new().await;
    let w = world.workspace("w").await;
    let (p, other) = (world.provider(&w, "p").await, world.provider(&w, "other").await);
    let with_phase = |row: &row::Sandbox, phase| Write::UpdateSandbox(next(row, |row| row.phase = phase));
    let updated = |row: &row::Provider| {
        Write::UpdateProvider(row::Provider { resource_version: row.resource_version + 1, ..row.clone() })
    };
    for (name, kind, change, end) in [
        ("moved", Kind::Attach, None, State::Superseded),
        ("stopping", Kind::Attach, Some(SandboxPhase::Stopping), State::Pending),
        ("ready", Kind::Update, Some(SandboxPhase::Ready), State::Pending),
        ("stopped", Kind::Update, Some(SandboxPhase::Stopped), State::Inactive),
        ("completed", Kind::Detach, Some(SandboxPhase::Completed), State::Inactive),
        ("deleting", Kind::Attach, Some(SandboxPhase::Deleting), State::Cancelled),
    ] {
        let s = world.sandbox(&w, name).await;
        let neighbour = world.sandbox(&w, &format!("{name}-beside")).await;
        let (ours, beside) = (receipt(kind, &s, &p), receipt(kind, &neighbour, &p));
        world.write(vec![Write::InsertReceipts(vec![ours.clone(), beside.clone()])]).await;
        let write = match change {
            Some(phase) => with_phase(&s, phase),
            None => Write::UpdateSandbox(next(&s, |row| row.attachment_epoch = Uuid::now_v7())),
        };
        world.write(vec![write]).await;
        let ended = kept(&world, &ours).await;
        assert_eq!((ended.state, ended.at.is_some()), (end, end != State::Pending), "{name}");
        assert_eq!(kept(&world, &beside).await, Completion::pending(), "beside {name}");
    }

    // Another version takes the place of what is attached; of what was detached it says nothing.
    let s = world.sandbox(&w, "versioned").await;
    let receipts = [(Kind::Attach, &p), (Kind::Update, &p), (Kind::Detach, &p), (Kind::Attach, &other)]
        .map(|(kind, provider)| receipt(kind, &s, provider));
    world.write(vec![Write::InsertReceipts(receipts.to_vec())]).await;
    world.write(vec![updated(&p)]).await;
    for (receipt, end) in receipts.iter().zip([State::Superseded, State::Superseded, State::Pending, State::Pending]) {
        assert_eq!(kept(&world, receipt).await.state, end, "{:?} of {}", receipt.kind, receipt.provider_name);
    }
}

#[tokio::test]
async fn an_end_is_kept_whatever_happens_and_whoever_writes() {
    let mut world = World::new().await;
    let w = world.workspace("w").await;
    let p = world.provider(&w, "p").await;
    let s = world.sandbox(&w, "s").await;
    let ours = receipt(Kind::Attach, &s, &p);
    let end = |state, error: &str| Write::SettleReceipts {
        sandbox_id: s.id,
        end: Completion { state, outcome: ConfigApplyOutcome::FailedClosed, error: error.into(), at: Some(now()) },
    };
    world.write(vec![Write::InsertReceipts(vec![ours.clone()])]).await;
    world.write(vec![end(State::Failed, "why")]).await;
    let ended = kept(&world, &ours).await;
    assert_eq!((ended.state, ended.outcome), (State::Failed, ConfigApplyOutcome::FailedClosed));
    assert_eq!(ended.error, "why");

    world.write(vec![end(State::Applied, "")]).await;
    let deleting = next(&s, |row| {
        row.attachment_epoch = Uuid::now_v7();
        row.phase = SandboxPhase::Deleting;
    });
    world.write(vec![Write::UpdateSandbox(deleting)]).await;
    world
        .write(vec![Write::UpdateProvider(row::Provider { resource_version: p.resource_version + 1, ..p.clone() })])
        .await;
    assert_eq!(kept(&world, &ours).await, ended);
    let by_hand = "do $$ begin update roadstead.provider_receipt set operation = 2; raise 'it was rewritten';
        exception when others then if sqlerrm not like '%has ended%' then raise; end if; end $$";
    world.sql.run(by_hand).await;
    assert_eq!(kept(&world, &ours).await, ended);
}
