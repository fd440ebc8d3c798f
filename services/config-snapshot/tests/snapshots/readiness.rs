//! How ready a provider is, from the rows.

use prost::Message as _;
use roadstead_proto::api::v1::{
    GetSandboxProviderStatusResponse, ProviderMutationKind, ProviderReadinessObservation,
    ProviderReadinessReason as Reason, ProviderReadinessState as State, ProviderReadinessStatus,
};
use roadstead_store::mutation::Write;
use roadstead_store::row;
use tonic::Code;
use uuid::Uuid;

use crate::world::{World, admin, binding, code, now, response, user};

/// A receipt of what is desired now, written as admission does.
async fn receipt(world: &World, sandbox: &row::Sandbox, provider: &row::Provider) -> String {
    let row = row::ProviderReceipt {
        id: Uuid::new_v4(),
        sandbox_id: sandbox.id,
        mutation_id: Uuid::new_v4(),
        kind: ProviderMutationKind::Attach,
        provider_id: provider.id,
        provider_name: provider.name.clone(),
        provider_version: provider.resource_version,
        attachment_epoch: sandbox.attachment_epoch,
        persisted_at: now(),
        completion: row::Completion::pending(),
    };
    let id = row.id.to_string();
    world.write_silently(vec![Write::InsertReceipts(vec![row])]).await;
    id
}

async fn status(world: &World, sandbox: &str, provider: &str, receipt: &str) -> ProviderReadinessStatus {
    let answer = world.provider_status(&user("ann"), sandbox, provider, receipt).await;
    GetSandboxProviderStatusResponse::decode(response(answer)).unwrap().status.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_sandboxs_own_session_observes_counts_and_nothing_else() {
    let world = World::new().await;
    let workspace = world.workspace("w").await;
    world.member(&workspace, "ann").await;
    let git = world.provider(&workspace, "git", "s3cret").await;
    let sandbox = world.sandbox(&workspace, "box", &[&git]).await;
    let other = world.sandbox(&workspace, "other", &[&git]).await;
    world.policy(Some(sandbox.id), 1, binding(&[&git])).await;
    let receipt = receipt(&world, &sandbox, &git).await;
    let told = || async {
        let status = status(&world, "box", "", &receipt).await;
        (status.state(), status.reason())
    };
    assert_eq!(told().await, (State::Persisted, Reason::WaitingForSupervisor));

    let session = row::Session {
        id: Uuid::from_u128(1),
        bridge_id: Uuid::from_u128(2),
        instance_id: "i".into(),
        connection_epoch: 1,
        config_push: true,
        result_number: 0,
        end_number: 0,
    };
    let held = row::Sandbox { resource_version: 2, session: Some(session), ..sandbox.clone() };
    world.write_silently(vec![Write::UpdateSandbox(held.clone())]).await;
    let desired = status(&world, "box", "git", "").await.receipt.unwrap().desired.unwrap();
    let seen = ProviderReadinessObservation {
        attachment_epoch: desired.attachment_epoch.clone(),
        provider_env_revision: desired.provider_env_revision,
        config_revision: desired.config_revision,
        policy_hash: desired.policy_hash.clone(),
        credentials_installed: true,
        policy_active: true,
        launch_environment_installed: true,
        ..Default::default()
    };
    let said = |session: u128, readiness_announced: bool, readiness_number: u64, readiness| row::Observation {
        sandbox_id: sandbox.id,
        session_id: Uuid::from_u128(session),
        readiness_announced,
        readiness_number,
        readiness,
        readiness_at: now(),
        endpoint_sequence: 0,
    };
    for (row, expected) in [
        (said(1, false, 0, None), (State::Pending, Reason::UnsupportedSupervisor)),
        (said(1, true, 0, None), (State::Pending, Reason::WaitingForSupervisor)),
        (said(1, true, 1, Some(seen.clone())), (State::Ready, Reason::Unspecified)),
        (said(1, true, 2, None), (State::Pending, Reason::SupervisorLeaseExpired)),
        (said(9, true, 3, Some(seen.clone())), (State::Pending, Reason::WaitingForSupervisor)),
    ] {
        world.write_silently(vec![Write::PutObservation(row.clone())]).await;
        assert_eq!(told().await, expected, "{row:?}");
    }
    let gone = row::Sandbox { resource_version: 3, session: None, ..held.clone() };
    world.write_silently(vec![Write::UpdateSandbox(gone.clone())]).await;
    assert_eq!(told().await, (State::Pending, Reason::SupervisorDisconnected));

    // Members only, and only of their own sandbox.
    let stranger = world.provider_status(&user("bob"), "box", "", &receipt).await;
    assert_eq!(code(stranger), Code::PermissionDenied);
    let looked = status(&world, "other", "git", "").await.receipt.unwrap().receipt_id;
    assert_eq!(status(&world, "other", "git", &looked).await.receipt.unwrap().receipt_id, looked);
    for (sandbox, provider, receipt) in [
        ("other", "", receipt.as_str()),
        ("box", "", looked.as_str()),
        ("box", "hub", receipt.as_str()),
        ("box", "hub", ""),
        ("none", "git", ""),
    ] {
        let answer = world.provider_status(&admin(), sandbox, provider, receipt).await;
        assert_eq!(code(answer), Code::NotFound, "{sandbox} {provider} {receipt}");
    }
    for (sandbox, provider) in [("box", ""), ("", "git")] {
        let answer = world.provider_status(&admin(), sandbox, provider, "").await;
        assert_eq!(code(answer), Code::InvalidArgument, "{sandbox} {provider}");
    }

    // Another version of the provider, then another epoch of the sandbox.
    world.write_silently(vec![Write::UpdateProvider(row::Provider { resource_version: 2, ..git.clone() })]).await;
    let superseded = status(&world, "box", "", &receipt).await;
    assert_eq!((superseded.state(), superseded.reason()), (State::Superseded, Reason::DesiredStateChanged));
    assert_eq!(superseded.receipt.unwrap().desired.unwrap().config_revision, 0, "what it was is not known any more");
    assert_eq!(status(&world, "other", "", &looked).await.state(), State::Superseded);
    let moved = row::Sandbox { resource_version: 2, attachment_epoch: Uuid::new_v4(), ..other };
    let looked = status(&world, "other", "git", "").await.receipt.unwrap().receipt_id;
    assert_eq!(status(&world, "other", "", &looked).await.state(), State::Persisted);
    world.write_silently(vec![Write::UpdateSandbox(moved)]).await;
    assert_eq!(status(&world, "other", "", &looked).await.state(), State::Superseded);
    world.stop().await;
}
