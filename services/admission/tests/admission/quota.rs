//! How many request ids a caller may hold.

use roadstead_proto::api::v1;
use roadstead_proto::method::Method;
use tonic::Code;

use crate::world::{World, create_sandbox, fresh_id, root, user_named};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_with_a_full_quota_keeps_its_old_ids_and_its_calls_without_one() {
    let mut world = World::with(2, &["--request-id-quota=5"]).await;
    world.workspace("w").await;
    let requests = (0..12).map(|at| create_sandbox("w", &format!("box-{at}"), &fresh_id())).collect::<Vec<_>>();
    let calls = requests.iter().map(|request| {
        let (edge, request) = (world.edge.clone(), request.clone());
        tokio::spawn(async move { edge.user_call(&root(), Method::CreateSandbox, &request).await })
    });
    let mut done = Vec::new();
    for (call, request) in calls.collect::<Vec<_>>().into_iter().zip(&requests) {
        match call.await.unwrap() {
            Ok(_) => done.push(request),
            Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}"),
        }
    }
    assert_eq!(done.len(), 5);
    assert_eq!(world.count("sandbox").await, 5);
    for request in done {
        assert!(world.edge.user_call(&root(), Method::CreateSandbox, request).await.unwrap().1);
    }
    world.sandbox("w", "without-an-id").await;
    let other = user_named("other", true);
    let request = v1::CreateWorkspaceRequest { name: "v".into(), request_id: fresh_id(), ..Default::default() };
    world.edge.user_call(&other, Method::CreateWorkspace, &request).await.unwrap();

    // Successes that are past their time make room at once, what is unresolved does not.
    world.sql.run("update roadstead.claim set completed_at = null where ctid in (select ctid from roadstead.claim where method = 'CreateSandbox' limit 2)").await;
    world.sql.run("update roadstead.claim set completed_at = completed_at - interval '25 hours'").await;
    for at in 0..3 {
        let request = create_sandbox("w", &format!("later-{at}"), &fresh_id());
        world.edge.user_call(&root(), Method::CreateSandbox, &request).await.unwrap();
    }
    let request = create_sandbox("w", "one-too-many", &fresh_id());
    let refused = world.edge.user_call(&root(), Method::CreateSandbox, &request).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    world.stop().await;
}
