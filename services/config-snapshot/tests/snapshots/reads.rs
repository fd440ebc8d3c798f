//! Polls and bootstraps.

use std::time::Duration;

use prost::Message as _;
use roadstead_proto::api::sandbox::{GetSandboxConfigRequest, GetSandboxConfigResponse};
use roadstead_proto::api::v1::{
    GetSandboxProviderEnvironmentRequest, GetSandboxProviderEnvironmentResponse, ProviderReadinessReason,
};
use roadstead_proto::internal::{BootstrapReply, BootstrapRequest, read_reply::Outcome as Answer};
use roadstead_proto::role::Role;
use roadstead_proto::subject::ConfigCall;
use roadstead_store::mutation::Write;
use roadstead_store::row;
use tonic::Code;

use crate::world::{World, admin, binding, code, response, user};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_and_admins_read_a_configuration_and_nobody_else() {
    let world = World::new().await;
    let workspace = world.workspace("w").await;
    world.member(&workspace, "ann").await;
    let sandbox = world.sandbox(&workspace, "box", &[]).await;
    world.policy(Some(sandbox.id), 1, binding(&[])).await;

    for caller in [user("ann"), admin()] {
        let answer = world.user_asks(&caller, "w", "box").await.unwrap();
        let config = GetSandboxConfigResponse::decode(response(answer)).unwrap();
        assert_eq!((config.version, config.configuration_admitted, config.workspace.as_str()), (1, true, "w"));
    }
    assert_eq!(code(world.user_asks(&user("ann"), "w", "other").await.unwrap()), Code::NotFound);
    assert_eq!(code(world.user_asks(&user("ann"), "w", "").await.unwrap()), Code::InvalidArgument);
    for place in ["w", "nowhere"] {
        assert_eq!(code(world.user_asks(&user("bob"), place, "box").await.unwrap()), Code::PermissionDenied);
    }
    assert_eq!(code(world.user_asks(&admin(), "nowhere", "box").await.unwrap()), Code::NotFound);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_supervisor_reads_its_own_halves_equal_to_the_entry() {
    let world = World::new().await;
    let workspace = world.workspace("w").await;
    let git = world.provider(&workspace, "git", "s3cret").await;
    let sandbox = world.sandbox(&workspace, "box", &[&git]).await;
    world.policy(Some(sandbox.id), 1, binding(&[&git])).await;

    let reply = BootstrapReply::decode(response(world.bootstrap(&sandbox).await)).unwrap();
    let entry = reply.entry.unwrap();
    let request = GetSandboxConfigRequest { name: "box".into(), workspace_scope: None };
    let config = response(world.sandbox_asks(&sandbox, ConfigCall::GetSandboxConfig, &request).await);
    assert_eq!(config, entry.config.as_ref().unwrap().encode_to_vec());

    let environment = |supports| GetSandboxProviderEnvironmentRequest {
        sandbox_id: sandbox.id.to_string(),
        supports_static_credential_bindings: supports,
        supports_stable_placeholder_environment_keys: supports,
    };
    let full = secret(&world, &sandbox, &environment(true)).await;
    assert_eq!(full.environment["GIT_TOKEN"], "s3cret");
    assert_eq!(full.provider_env_revision, entry.config.unwrap().provider_env_revision);
    let bare = secret(&world, &sandbox, &environment(false)).await;
    assert_eq!(bare.environment.keys().collect::<Vec<_>>(), ["GIT_URL"]);
    assert_eq!(bare.readiness_reason(), ProviderReadinessReason::UnsupportedSupervisor);

    let other = world.sandbox(&workspace, "other", &[]).await;
    let call = ConfigCall::GetSandboxProviderEnvironment;
    assert_eq!(code(world.sandbox_asks(&other, call, &environment(true)).await), Code::PermissionDenied);
    world.stop().await;
}

async fn secret(
    world: &World,
    sandbox: &row::Sandbox,
    request: &GetSandboxProviderEnvironmentRequest,
) -> GetSandboxProviderEnvironmentResponse {
    let answer = world.sandbox_asks(sandbox, ConfigCall::GetSandboxProviderEnvironment, request).await;
    let Answer::SecretResponse(sealed) = answer else { panic!("an answer in the clear") };
    assert!(!sealed.windows(6).any(|bytes| bytes == b"s3cret"));
    let cipher = world.keys(Role::SupervisorBridge).snapshots().unwrap();
    let plaintext = cipher.decrypt(sandbox.id.as_bytes(), &sealed).unwrap();
    GetSandboxProviderEnvironmentResponse::decode(plaintext.as_slice()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bootstrap_shows_what_was_committed_before_it_whether_or_not_anybody_was_told() {
    let world = World::new().await;
    let workspace = world.workspace("w").await;
    let sandbox = world.sandbox(&workspace, "box", &[]).await;
    for resource_version in 2..8 {
        let attachment_epoch = uuid::Uuid::new_v4();
        let row = row::Sandbox { resource_version, attachment_epoch, ..sandbox.clone() };
        world.write_silently(vec![Write::UpdateSandbox(row)]).await;
        let reply = BootstrapReply::decode(response(world.bootstrap(&sandbox).await)).unwrap();
        let config = reply.entry.clone().unwrap().config.unwrap();
        assert_eq!(config.provider_attachment_epoch, attachment_epoch.to_string());
        assert_eq!(world.entry(sandbox.id).await.unwrap().0, reply.entry.unwrap());
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_an_earlier_run_and_a_sandbox_that_is_gone_get_nothing() {
    let world = World::new().await;
    let workspace = world.workspace("w").await;
    let sandbox = world.sandbox(&workspace, "box", &[]).await;
    let row = row::Sandbox { resource_version: 2, generation: 2, ..sandbox.clone() };
    world.write(vec![Write::UpdateSandbox(row.clone())]).await;
    assert_eq!(code(world.bootstrap(&sandbox).await), Code::Unauthenticated);
    assert!(matches!(world.bootstrap(&row).await, Answer::Response(_)));
    world.write(vec![Write::DeleteSandbox(sandbox.id)]).await;
    assert_eq!(code(world.bootstrap(&row).await), Code::NotFound);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_handed_out_while_postgres_is_away_and_the_mark_is_kept() {
    let world = World::new().await;
    let workspace = world.workspace("w").await;
    let sandbox = world.sandbox(&workspace, "box", &[]).await;
    world.entry_where(sandbox.id, "its entry", |_| true).await;

    world.postgres.cut();
    world.policy(Some(sandbox.id), 1, binding(&[])).await;
    let Answer::Status(status) = world.bootstrap(&sandbox).await else { panic!("an answer without Postgres") };
    let status = roadstead_service_kit::status::from_bytes(&status);
    assert!(matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded), "{status:?}");
    assert_eq!(world.entry(sandbox.id).await.unwrap().0.config.unwrap().version, 0);

    world.postgres.heal();
    world.postgres.reset();
    let shows = |entry: &roadstead_proto::internal::SnapshotEntry| entry.config.as_ref().unwrap().version == 1;
    world.entry_where(sandbox.id, "what was committed meanwhile", shows).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_that_does_not_open_fails_the_build_and_the_entry_stays() {
    let world = World::new().await;
    let workspace = world.workspace("w").await;
    let git = world.provider(&workspace, "git", "s3cret").await;
    let sandbox = world.sandbox(&workspace, "box", &[&git]).await;
    world.policy(Some(sandbox.id), 1, binding(&[&git])).await;
    let shows = |entry: &roadstead_proto::internal::SnapshotEntry| entry.config.as_ref().unwrap().version == 1;
    let before = world.entry_where(sandbox.id, "its entry", shows).await;
    world.idle().await;

    // Sealed for another provider.
    let credentials = vec![world.credential(sandbox.id, "GIT_TOKEN", "s3cret")];
    let broken = row::Provider { resource_version: 2, credentials, ..git.clone() };
    world.write_silently(vec![Write::UpdateProvider(broken)]).await;
    assert_eq!(code(world.bootstrap(&sandbox).await), Code::Internal);
    let request = GetSandboxConfigRequest { name: "box".into(), workspace_scope: None };
    assert_eq!(code(world.sandbox_asks(&sandbox, ConfigCall::GetSandboxConfig, &request).await), Code::Internal);
    assert_eq!(world.entry(sandbox.id).await.unwrap(), before);
    tokio::time::timeout(Duration::from_secs(30), world.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bootstrap_names_the_sandbox_of_its_token() {
    let world = World::new().await;
    let workspace = world.workspace("w").await;
    let (one, two) = (world.sandbox(&workspace, "one", &[]).await, world.sandbox(&workspace, "two", &[]).await);
    let request = BootstrapRequest { sandbox_id: two.id.to_string() };
    assert_eq!(code(world.sandbox_asks(&one, ConfigCall::Bootstrap, &request).await), Code::PermissionDenied);
    world.stop().await;
}
