//! One request id, many commands.

use std::collections::BTreeSet;

use roadstead_proto::api::v1;
use roadstead_proto::method::Method;
use tonic::Code;

use crate::world::{World, create_sandbox, fresh_id, reason, root, sandbox_of, scope, user_named};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicates_that_overlap_have_one_effect_and_all_see_it() {
    let mut world = World::with(2, &[]).await;
    world.workspace("w").await;
    for round in 0..3 {
        let request = create_sandbox("w", "", &fresh_id());
        // So that all overlap: nobody gets past the workspace's row for a while.
        let mut holder = world.session().await;
        if round > 0 {
            holder.hold("select * from roadstead.workspace where name = 'w' for update").await;
        }
        let calls = (0..16).map(|_| {
            let (edge, request) = (world.edge.clone(), request.clone());
            tokio::spawn(async move { edge.user_call(&root(), Method::CreateSandbox, &request).await })
        });
        let calls = calls.collect::<Vec<_>>();
        if round > 0 {
            let waiting =
                "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
            while world.sql.value(waiting).await == "0" {
                tokio::task::yield_now().await;
            }
            holder.release().await;
        }
        let mut ids = BTreeSet::new();
        let (mut firsts, mut uncertain) = (0, 0);
        for call in calls {
            match call.await.unwrap() {
                Ok((body, replayed)) => {
                    firsts += u32::from(!replayed);
                    ids.insert(sandbox_of(Ok((body, replayed))).metadata.unwrap().id);
                }
                Err(status) => {
                    assert_eq!(reason(&status), Some("REQUEST_OUTCOME_UNCERTAIN"), "{status:?}");
                    uncertain += 1;
                }
            }
        }
        assert_eq!((ids.len(), firsts), (1, 1), "{uncertain} uncertain");
        assert_eq!(world.count("sandbox").await, round + 1);
        let (_, replayed) = world.edge.user_call(&root(), Method::CreateSandbox, &request).await.unwrap();
        assert!(replayed);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_is_bound_to_caller_method_target_and_payload() {
    let mut world = World::new().await;
    let id = fresh_id();
    let create = |name: &str, id: &str| v1::CreateWorkspaceRequest {
        name: name.into(),
        request_id: id.into(),
        ..Default::default()
    };
    let delete = v1::DeleteWorkspaceRequest { name: "w1".into(), request_id: id.clone(), ..Default::default() };
    for name in ["w1", "w2"] {
        let (_, replayed) = world.edge.user_call(&root(), Method::CreateWorkspace, &create(name, &id)).await.unwrap();
        assert!(!replayed);
    }
    // The same id in capitals is the same id.
    let upper = create("w1", &id.to_uppercase());
    assert!(world.edge.user_call(&root(), Method::CreateWorkspace, &upper).await.unwrap().1);
    let changed = v1::CreateWorkspaceRequest { labels: [("a".to_owned(), "b".to_owned())].into(), ..upper.clone() };
    let mismatch = world.edge.user_call(&root(), Method::CreateWorkspace, &changed).await.unwrap_err();
    assert_eq!(reason(&mismatch), Some("REQUEST_ID_PAYLOAD_MISMATCH"));
    // Another caller is another story: it meets the name, not the record.
    let other = user_named("other", true);
    let taken = world.edge.user_call(&other, Method::CreateWorkspace, &create("w1", &id)).await.unwrap_err();
    assert_eq!(taken.code(), Code::AlreadyExists);

    assert!(!world.edge.user_call(&root(), Method::DeleteWorkspace, &delete).await.unwrap().1);
    let gone = world.edge.user_call(&root(), Method::CreateWorkspace, &upper).await.unwrap_err();
    assert_eq!(reason(&gone), Some("REQUEST_REPLAY_UNAVAILABLE"));
    world.workspace("w1").await;
    // A recorded deletion never touches the namesake.
    assert!(world.edge.user_call(&root(), Method::DeleteWorkspace, &delete).await.unwrap().1);
    assert_eq!(world.count("workspace where name = 'w1'").await, 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_never_shows_or_touches_a_namesake() {
    let mut world = World::new().await;
    world.workspace("w").await;
    let (one, two, three) = (fresh_id(), fresh_id(), fresh_id());
    let create = |id: &str| create_sandbox("w", "box", id);
    let first = sandbox_of(world.edge.user_call(&root(), Method::CreateSandbox, &create(&one)).await);
    let delete = v1::DeleteSandboxRequest {
        name: "box".into(),
        workspace_scope: scope("w"),
        request_id: two.clone(),
        ..Default::default()
    };
    world.edge.user_call(&root(), Method::DeleteSandbox, &delete).await.unwrap();
    let third = sandbox_of(world.edge.user_call(&root(), Method::CreateSandbox, &create(&three)).await);

    let gone = world.edge.user_call(&root(), Method::CreateSandbox, &create(&one)).await.unwrap_err();
    assert_eq!(reason(&gone), Some("REQUEST_REPLAY_UNAVAILABLE"));
    let (body, replayed) = world.edge.user_call(&root(), Method::DeleteSandbox, &delete).await.unwrap();
    let recorded = <v1::DeleteSandboxResponse as prost::Message>::decode(body).unwrap();
    assert!(replayed);
    assert_eq!(recorded.sandbox_id, first.metadata.unwrap().id);
    let version = world.sql.value("select id || ' ' || resource_version from roadstead.sandbox").await;
    assert_eq!(version, format!("{} 1", third.metadata.unwrap().id));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_leaves_no_marks_and_changes_no_row() {
    let mut world = World::new().await;
    world.workspace("w").await;
    let request = create_sandbox("w", "box", &fresh_id());
    world.edge.user_call(&root(), Method::CreateSandbox, &request).await.unwrap();
    world.quiet().await;
    let drawn = "select last_value from pg_sequences where sequencename = 'outbox_id_seq'";
    let before = world.sql.value(drawn).await;
    for _ in 0..20 {
        assert!(world.edge.user_call(&root(), Method::CreateSandbox, &request).await.unwrap().1);
    }
    assert_eq!(world.sql.value(drawn).await, before);
    assert_eq!(world.sql.value("select resource_version from roadstead.sandbox").await, "1");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_of_a_call_whose_caller_lost_its_rights_is_denied() {
    let world = World::new().await;
    world.workspace("w").await;
    let ann = user_named("ann", false);
    let member = v1::AddWorkspaceMemberRequest {
        workspace_scope: scope("w"),
        principal_subject: "ann".into(),
        role: v1::WorkspaceRole::User.into(),
        ..Default::default()
    };
    world.edge.user_call(&root(), Method::AddWorkspaceMember, &member).await.unwrap();
    let request = create_sandbox("w", "box", &fresh_id());
    world.edge.user_call(&ann, Method::CreateSandbox, &request).await.unwrap();
    let remove = v1::RemoveWorkspaceMemberRequest {
        workspace_scope: scope("w"),
        principal_subject: "ann".into(),
        ..Default::default()
    };
    world.edge.user_call(&root(), Method::RemoveWorkspaceMember, &remove).await.unwrap();
    let used = world.edge.user_call(&ann, Method::CreateSandbox, &request).await.unwrap_err();
    let unused = create_sandbox("w", "box", &fresh_id());
    let unused = world.edge.user_call(&ann, Method::CreateSandbox, &unused).await.unwrap_err();
    assert_eq!((used.code(), used.message()), (Code::PermissionDenied, unused.message()));
    world.stop().await;
}
