//! A workspace that is being deleted: what is in it keeps it there, nothing new comes into it, and when it is gone
//! nothing of it is left.

use std::{sync::Arc, time::Duration};

use roadstead_e2e::{
    api::{request_id, scope},
    effect::Told,
    policy,
};
use roadstead_proto::api::v1::{
    CreateSandboxRequest, DeleteProviderRequest, DeleteSandboxRequest, DeleteWorkspaceRequest, DeletionOutcome,
    UpdateConfigRequest,
};
use roadstead_testkit::{eventually, generate, soak, stack::Plan};
use tokio::task::JoinSet;
use tonic::{Code, Status};

use crate::world::{Answer, SOON, World, answer, create, create_provider};

const ROUNDS: u32 = 4;
const CREATORS: usize = 8;
/// Retention sweeps every ten seconds.
const CLEAN: Duration = Duration::from_secs(60);

async fn delete(world: &World, edge: usize, workspace: &str) -> Result<DeletionOutcome, Status> {
    let request = DeleteWorkspaceRequest { name: workspace.to_owned(), request_id: request_id(), ..Default::default() };
    answer(world.api(edge).delete_workspace(request).await).map(|(response, _)| response.outcome())
}

async fn delete_sandbox(world: &World, workspace: &str, name: &str) {
    let request = DeleteSandboxRequest {
        workspace_scope: scope(workspace),
        name: name.to_owned(),
        request_id: request_id(),
        ..Default::default()
    };
    world.api(1).delete_sandbox(request).await.unwrap();
}

fn creation(world: &World, workspace: &str, name: &str) -> CreateSandboxRequest {
    CreateSandboxRequest { workspace_scope: scope(workspace), ..world.creation(name, &request_id()) }
}

/// Waits until nothing is left of a workspace that is gone: the policies of its sandboxes go a few at a time.
async fn leaves_nothing_behind(world: &World, workspace: &str) {
    eventually(CLEAN, "nothing is left behind", async || {
        let left = left_behind(world, workspace).await;
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

/// What is left of it, by table.
async fn left_behind(world: &World, workspace: &str) -> Vec<(String, u64)> {
    let tables = world
        .sql(
            "select table_name from information_schema.columns where table_schema = 'roadstead' \
             and column_name = 'workspace_name'",
        )
        .await;
    assert!(tables.len() >= 3, "{tables:?}");
    let mut left = Vec::new();
    for table in tables.into_iter().flatten() {
        let count = world.count(&format!("{table} where workspace_name = '{workspace}'")).await;
        left.extend((count > 0).then_some((table, count)));
    }
    // What belongs to a sandbox is found by its id alone.
    for table in ["policy_revision", "setting", "settings_revision", "attachment"] {
        let owner = if table == "attachment" { "sandbox_id" } else { "scope" };
        let nobodys = format!(
            "{table} where {owner} <> '{}' and {owner} not in (select id from roadstead.sandbox)",
            uuid::Uuid::nil()
        );
        let count = world.count(&nobodys).await;
        left.extend((count > 0).then_some((table.to_owned(), count)));
    }
    left
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_with_something_in_it_stays_terminating_takes_nothing_new_and_goes_when_it_is_empty() {
    let world = World::start(Plan::pairs(), &[]).await;
    let workspace = generate::unique("ending");
    world.create_workspace(&workspace).await;
    create_provider(world.api(1), &workspace, "provider").await;
    create(world.api(1), creation(&world, &workspace, "box")).await.unwrap();
    let policy = UpdateConfigRequest {
        workspace_scope: scope(&workspace),
        sandbox: "box".to_owned(),
        policy: Some(policy::to_host("ending.example.com", None)),
        request_id: request_id(),
        ..Default::default()
    };
    world.api(2).update_config(policy).await.unwrap();

    for edge in [1, 2] {
        let blocked = delete(&world, edge, &workspace).await.unwrap_err();
        assert_eq!(blocked.code(), Code::FailedPrecondition, "{blocked:?}");
        assert!(blocked.message().contains("provider") && blocked.message().contains("sandbox"), "{blocked:?}");
    }
    for edge in [1, 2] {
        let refused = create(world.api(edge), creation(&world, &workspace, "late")).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
        assert!(refused.message().contains("being deleted"), "{refused:?}");
    }
    delete_sandbox(&world, &workspace, "box").await;
    let blocked = delete(&world, 2, &workspace).await.unwrap_err();
    assert!(blocked.message().contains("provider") && !blocked.message().contains("sandbox"), "{blocked:?}");
    let request = DeleteProviderRequest {
        workspace_scope: scope(&workspace),
        name: "provider".to_owned(),
        request_id: request_id(),
        ..Default::default()
    };
    world.api(1).delete_provider(request).await.unwrap();
    assert_eq!(delete(&world, 1, &workspace).await.unwrap(), DeletionOutcome::Completed);
    leaves_nothing_behind(&world, &workspace).await;
    assert_eq!(delete(&world, 2, &workspace).await.unwrap_err().code(), Code::NotFound);
}

/// Creates one sandbox after the other until one is refused; what was told of each.
async fn create_until_refused(world: Arc<World>, workspace: String, number: usize) -> Vec<(String, Answer<String>)> {
    let mut told = Vec::new();
    loop {
        let name = format!("m{number}-{}", told.len());
        let answer = create(world.api(1 + number % 2), creation(&world, &workspace, &name)).await;
        let is_refused = answer.is_err();
        told.push((name, answer));
        if is_refused {
            return told;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn creations_that_race_a_deletion_are_in_its_way_or_refused_and_none_is_lost() {
    let world = Arc::new(World::start(Plan::pairs(), &[]).await);
    for round in 0..soak::count(ROUNDS) {
        let workspace = generate::unique("race");
        world.create_workspace(&workspace).await;
        let mut creators = JoinSet::new();
        // In every other round the deletion comes first and may well find it empty.
        let first = (round % 2 == 1).then(|| {
            let (world, workspace) = (Arc::clone(&world), workspace.clone());
            tokio::spawn(async move { delete(&world, 2, &workspace).await })
        });
        for number in 0..CREATORS {
            creators.spawn(create_until_refused(Arc::clone(&world), workspace.clone(), number));
        }
        let outcome = match first {
            Some(first) => first.await.unwrap(),
            None => delete(&world, 1, &workspace).await,
        };
        let told = tokio::time::timeout(SOON, creators.join_all()).await.expect("the workspace takes no more");
        let told: Vec<_> = told.into_iter().flatten().collect();
        for (name, told) in &told {
            let Err(status) = told else { continue };
            let is_refused = match status.code() {
                Code::FailedPrecondition => status.message().contains("being deleted"),
                code => code == Code::NotFound,
            };
            assert!(is_refused && matches!(Told::by(status), Told::Refused(_)), "{name}: {status:?}");
        }
        let created: Vec<_> = told.iter().filter(|(_, told)| told.is_ok()).map(|(name, _)| name).collect();
        let there = world.count(&format!("sandbox where workspace_name = '{workspace}'")).await;
        assert_eq!(there, created.len() as u64, "a told success was lost, or one slipped in");
        match outcome {
            Ok(outcome) => {
                assert_eq!(outcome, DeletionOutcome::Completed);
                assert!(created.is_empty(), "deleted over {created:?}");
            }
            Err(status) => {
                assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
                // From now on nothing can come into it, so it can be emptied and goes.
                for name in created {
                    delete_sandbox(&world, &workspace, name).await;
                }
                assert_eq!(delete(&world, 2, &workspace).await.unwrap(), DeletionOutcome::Completed);
            }
        }
        leaves_nothing_behind(&world, &workspace).await;
        assert_eq!(world.count(&format!("workspace where name = '{workspace}'")).await, 0);
    }
}
