//! A replay is about the object that there was, never about another one of its name.

use roadstead_e2e::{
    api::{reason, request_id, scope},
    policy,
};
use roadstead_proto::api::v1::{
    AttachSandboxProviderRequest, DeleteProviderRequest, DeletionOutcome, UpdateConfigRequest,
};
use roadstead_testkit::stack::Plan;
use tonic::Status;

use crate::world::{Answer, World, answer, create};

const NAME: &str = "namesake";
const PROVIDER: &str = "provider";

async fn delete(world: &World, edge: usize, request_id: &str) -> Answer<(DeletionOutcome, String)> {
    let answer = answer(world.api(edge).delete_sandbox(world.deletion(NAME, request_id)).await);
    answer.map(|(response, replayed)| ((response.outcome(), response.sandbox_id), replayed))
}

async fn version(world: &World, id: &str) -> String {
    world.sql(&format!("select resource_version from roadstead.sandbox where id = '{id}'")).await[0][0].clone()
}

fn attach(world: &World, request_id: &str) -> AttachSandboxProviderRequest {
    AttachSandboxProviderRequest {
        workspace_scope: scope(&world.workspace),
        sandbox: NAME.to_owned(),
        provider: PROVIDER.to_owned(),
        request_id: request_id.to_owned(),
        ..Default::default()
    }
}

fn update(world: &World, request_id: &str) -> UpdateConfigRequest {
    UpdateConfigRequest {
        workspace_scope: scope(&world.workspace),
        sandbox: NAME.to_owned(),
        policy: Some(policy::to_host("name.example.com", None)),
        request_id: request_id.to_owned(),
        ..Default::default()
    }
}

fn assert_unavailable<T: std::fmt::Debug>(answer: Result<T, Status>) {
    let status = answer.expect_err("it was carried out or replayed");
    assert_eq!(reason(&status), "REQUEST_REPLAY_UNAVAILABLE", "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_request_id_never_touches_or_shows_an_object_that_took_the_name() {
    let world = World::start(Plan::pairs(), &[]).await;
    world.create_provider(PROVIDER).await;
    let [created, configured, attached, deleted, created_again] = [(); 5].map(|()| request_id());
    let (first, _) = create(world.api(1), world.creation(NAME, &created)).await.unwrap();
    world.api(1).update_config(update(&world, &configured)).await.unwrap();
    world.api(2).attach_sandbox_provider(attach(&world, &attached)).await.unwrap();
    let gone = (DeletionOutcome::Completed, first.clone());
    assert_eq!(delete(&world, 1, &deleted).await.unwrap(), (gone.clone(), false));
    let (second, replayed) = create(world.api(1), world.creation(NAME, &created_again)).await.unwrap();
    assert!(!replayed && second != first);
    let before = version(&world, &second).await;

    // Everything that the first of the name was told, again, at both edges.
    for edge in [2, 1] {
        assert_unavailable(create(world.api(edge), world.creation(NAME, &created)).await);
        assert_unavailable(world.api(edge).update_config(update(&world, &configured)).await);
        assert_unavailable(world.api(edge).attach_sandbox_provider(attach(&world, &attached)).await);
        assert_eq!(delete(&world, edge, &deleted).await.unwrap(), (gone.clone(), true));
    }
    assert_eq!(version(&world, &second).await, before);
    assert_eq!(world.marks(&second).await, 1, "the second of the name was changed");

    // One level up: the workspace goes and another one takes its name.
    let last = request_id();
    delete(&world, 1, &last).await.unwrap();
    let provider = DeleteProviderRequest {
        workspace_scope: scope(&world.workspace),
        name: PROVIDER.to_owned(),
        request_id: request_id(),
        ..Default::default()
    };
    world.api(1).delete_provider(provider).await.unwrap();
    world.delete_workspace(&world.workspace).await;
    world.create_workspace(&world.workspace).await;
    for edge in [1, 2] {
        for id in [&created, &created_again] {
            assert_unavailable(create(world.api(edge), world.creation(NAME, id)).await);
        }
        for id in [&deleted, &last] {
            assert_unavailable(delete(&world, edge, id).await);
        }
        assert_unavailable(world.api(edge).update_config(update(&world, &configured)).await);
        assert_unavailable(world.api(edge).attach_sandbox_provider(attach(&world, &attached)).await);
    }
    assert!(world.sandboxes().await.is_empty(), "an old request id was carried out");
    // And a new sandbox of the name is safe from them as well.
    let (third, _) = create(world.api(1), world.creation(NAME, &request_id())).await.unwrap();
    assert_unavailable(delete(&world, 2, &last).await);
    assert_eq!(world.sandboxes().await[NAME], third);
}
