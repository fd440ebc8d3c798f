//! What was told stays told.

use std::time::Duration;

use roadstead_proto::api::datamodel::{ObjectMeta, Provider};
use roadstead_proto::api::v1;
use roadstead_proto::method::Method;
use roadstead_proto::subject;
use tonic::Code;

use crate::world::{World, command, create_sandbox, fresh_id, principal, root, scope};

fn with_provider(request_id: &str) -> v1::CreateSandboxRequest {
    let spec = v1::SandboxSpec { providers: vec!["git".into()], ..Default::default() };
    v1::CreateSandboxRequest { spec: Some(spec), ..create_sandbox("w", "box", request_id) }
}

async fn create_provider(world: &World) {
    let provider = Provider {
        metadata: Some(ObjectMeta { name: "git".into(), ..Default::default() }),
        r#type: "generic".into(),
        credentials: [("GIT_TOKEN".to_owned(), "x".to_owned())].into(),
        ..Default::default()
    };
    let request =
        v1::CreateProviderRequest { provider: Some(provider), workspace_scope: scope("w"), ..Default::default() };
    world.edge.user_call(&root(), Method::CreateProvider, &request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_that_was_told_never_becomes_an_effect_and_frees_the_request_id() {
    let mut world = World::new().await;
    world.workspace("w").await;
    let request = with_provider(&fresh_id());
    let told = command(Method::CreateSandbox.name(), principal(&root()), &request, Duration::from_secs(40));
    let subject = subject::command(Method::CreateSandbox);
    let refused = world.edge.call(&subject, told.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    create_provider(&world).await;

    // The same command again, though it would succeed by now.
    let again = world.edge.call(&subject, told).await.unwrap_err();
    assert_eq!((again.code(), again.message()), (refused.code(), refused.message()));
    assert_eq!(world.count("sandbox").await, 0);
    // Another command with the same request id is free to.
    let (_, replayed) = world.edge.user_call(&root(), Method::CreateSandbox, &request).await.unwrap();
    assert!(!replayed);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_success_that_was_told_is_told_again_to_the_same_command() {
    let mut world = World::new().await;
    world.workspace("w").await;
    let request = create_sandbox("w", "box", "");
    let told = command(Method::CreateSandbox.name(), principal(&root()), &request, Duration::from_secs(40));
    let subject = subject::command(Method::CreateSandbox);
    let first = world.edge.call(&subject, told.clone()).await.unwrap();
    let again = world.edge.call(&subject, told).await.unwrap();
    assert_eq!(first, again);
    assert_eq!(world.count("sandbox").await, 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_past_its_deadline_is_not_begun_and_one_too_far_ahead_is_refused() {
    let mut world = World::new().await;
    world.workspace("w").await;
    let subject = subject::command(Method::CreateSandbox);
    for (deadline, code) in [(-1_i64, Code::DeadlineExceeded), (300, Code::InvalidArgument)] {
        let mut late = command(
            Method::CreateSandbox.name(),
            principal(&root()),
            &create_sandbox("w", "box", ""),
            Duration::from_secs(0),
        );
        late.deadline.as_mut().unwrap().seconds += deadline;
        let refused = world.edge.call(&subject, late).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused:?}");
    }
    assert_eq!(world.count("sandbox").await, 0);
    assert_eq!(world.count("command where outcome = 3 and method = 'CreateSandbox'").await, 2);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_request_id_leaves_nothing_in_the_ledger_of_ids() {
    let mut world = World::new().await;
    for bad in ["00000000-0000-0000-0000-000000000000", "nonsense", "{0190a5c0-7a2b-7c3d-8e4f-5a6b7c8d9e0f}"] {
        let request = v1::CreateWorkspaceRequest { name: "w".into(), request_id: bad.into(), ..Default::default() };
        let refused = world.edge.user_call(&root(), Method::CreateWorkspace, &request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains("request_id"));
    }
    assert_eq!((world.count("claim").await, world.count("quota_slot").await), (0, 0));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_success_is_forgotten_a_day_after_its_completion() {
    let mut world = World::new().await;
    world.workspace("w").await;
    let request = create_sandbox("w", "", &fresh_id());
    world.edge.user_call(&root(), Method::CreateSandbox, &request).await.unwrap();
    let age =
        |hours: u32| format!("update roadstead.claim set completed_at = clock_timestamp() - interval '{hours} hours'");
    world.sql.run(&age(23)).await;
    assert!(world.edge.user_call(&root(), Method::CreateSandbox, &request).await.unwrap().1);
    world.sql.run(&age(25)).await;
    // Its name is coined from its request id, so the second execution meets the first sandbox.
    let taken = world.edge.user_call(&root(), Method::CreateSandbox, &request).await.unwrap_err();
    assert_eq!(taken.code(), Code::AlreadyExists);
    world.stop().await;
}
