//! One request id is as many ids as there are targets, methods and workspaces.

use roadstead_e2e::api::{reason, request_id, scope};
use roadstead_proto::api::{
    datamodel::{ObjectMeta, Provider},
    v1::{
        AddWorkspaceMemberRequest, CreateProviderRequest, CreateSandboxRequest, CreateWorkspaceRequest,
        DeleteWorkspaceRequest, DeletionOutcome, SandboxSpec, WorkspaceRole,
    },
};
use roadstead_testkit::{generate, stack::Plan};
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::world::{Answer, World, answer, create};

/// The requests that have one id.
struct Requests {
    request_id: String,
}

impl Requests {
    fn upper_case(&self) -> Self {
        Self { request_id: self.request_id.to_uppercase() }
    }

    fn workspace(&self, name: &str) -> CreateWorkspaceRequest {
        CreateWorkspaceRequest { name: name.to_owned(), request_id: self.request_id.clone(), ..Default::default() }
    }

    fn end_of(&self, workspace: &str) -> DeleteWorkspaceRequest {
        DeleteWorkspaceRequest { name: workspace.to_owned(), request_id: self.request_id.clone(), ..Default::default() }
    }

    fn provider(&self, workspace: &str) -> CreateProviderRequest {
        let provider = Provider {
            metadata: Some(ObjectMeta { name: "same".to_owned(), ..Default::default() }),
            r#type: "generic".to_owned(),
            credentials: [("TOKEN".to_owned(), "value".to_owned())].into(),
            ..Default::default()
        };
        let request_id = self.request_id.clone();
        CreateProviderRequest { workspace_scope: scope(workspace), provider: Some(provider), request_id }
    }

    fn sandbox(&self, workspace: &str) -> CreateSandboxRequest {
        CreateSandboxRequest {
            workspace_scope: scope(workspace),
            name: "same".to_owned(),
            spec: Some(SandboxSpec::default()),
            request_id: self.request_id.clone(),
            ..Default::default()
        }
    }

    fn member(&self, workspace: &str) -> AddWorkspaceMemberRequest {
        AddWorkspaceMemberRequest {
            workspace_scope: scope(workspace),
            principal_subject: "same".to_owned(),
            role: WorkspaceRole::User.into(),
            request_id: self.request_id.clone(),
        }
    }
}

async fn create_workspace(world: &World, edge: usize, request: CreateWorkspaceRequest) -> Answer<String> {
    let answer = answer(world.api(edge).create_workspace(request).await);
    answer.map(|(response, replayed)| (response.workspace.unwrap().metadata.unwrap().id, replayed))
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_id_stands_for_another_call_with_each_target_method_and_workspace() {
    let world = World::start(Plan::pairs(), &[]).await;
    let same = Requests { request_id: request_id() };
    let upper = same.upper_case();
    let (first, second) = (generate::unique("first"), generate::unique("second"));

    // Each of these is the first of its kind.
    let (first_id, replayed) = create_workspace(&world, 1, same.workspace(&first)).await.unwrap();
    assert!(!replayed);
    let (second_id, replayed) = create_workspace(&world, 2, same.workspace(&second)).await.unwrap();
    assert!(!replayed);
    assert_ne!(first_id, second_id);
    let mut sandboxes = Vec::new();
    for (edge, workspace) in [(1, &first), (2, &second)] {
        let (id, replayed) = create(world.api(edge), same.sandbox(workspace)).await.unwrap();
        assert!(!replayed);
        sandboxes.push(id);
        assert!(!answer(world.api(edge).create_provider(same.provider(workspace)).await).unwrap().1);
        assert!(!answer(world.api(edge).add_workspace_member(same.member(workspace)).await).unwrap().1);
    }
    assert_ne!(sandboxes[0], sandboxes[1]);
    // `first`, with two objects that are in the way of its end.
    let refused = world.api(1).delete_workspace(same.end_of(&first)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");

    // In upper case it is the same id, at either edge.
    assert_eq!(create_workspace(&world, 2, upper.workspace(&second)).await.unwrap(), (second_id, true));
    for ((edge, workspace), id) in [(2, &first), (1, &second)].into_iter().zip(sandboxes) {
        assert_eq!(create(world.api(edge), upper.sandbox(workspace)).await.unwrap(), (id, true));
        assert!(answer(world.api(edge).create_provider(upper.provider(workspace)).await).unwrap().1);
        assert!(answer(world.api(edge).add_workspace_member(upper.member(workspace)).await).unwrap().1);
    }

    // An end has the name of its target to itself too: `third` is created and ended under the same id.
    let third = generate::unique("third");
    let (third_id, _) = create_workspace(&world, 1, same.workspace(&third)).await.unwrap();
    assert_eq!(create_workspace(&world, 2, upper.workspace(&third)).await.unwrap(), (third_id, true));
    for (edge, replayed) in [(1, false), (2, true)] {
        let answer = answer(world.api(edge).delete_workspace(upper.end_of(&third)).await).unwrap();
        assert_eq!((answer.0.outcome(), answer.1), (DeletionOutcome::Completed, replayed));
    }
    let gone = create_workspace(&world, 1, same.workspace(&third)).await.unwrap_err();
    assert_eq!(reason(&gone), "REQUEST_REPLAY_UNAVAILABLE");
    assert_eq!(world.count(&format!("workspace where name = '{third}'")).await, 0, "it was created again");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_request_id_is_refused_and_leaves_nothing() {
    let world = World::start(Plan::pairs(), &[]).await;
    let good = request_id();
    let before = world.ledger().await;
    for bad in [
        uuid::Uuid::nil().to_string(),
        good[..35].to_owned(),
        format!("{good}0"),
        format!("{{{good}}}"),
        good.replace('-', ""),
        format!("urn:uuid:{good}"),
        good.replace('-', "_"),
    ] {
        for edge in [1, 2] {
            let refused = create(world.api(edge), world.creation("never", &bad)).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{bad}: {refused:?}");
            let violations = refused.get_details_bad_request().unwrap().field_violations;
            assert_eq!(violations.iter().map(|one| one.field.as_str()).collect::<Vec<_>>(), ["request_id"], "{bad}");
        }
    }
    assert_eq!(world.ledger().await, before);
    assert!(world.sandboxes().await.is_empty());
}
