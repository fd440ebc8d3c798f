//! What may come from which queue.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use roadstead_proto::api::v1;
use roadstead_proto::method::Method;
use roadstead_proto::subject::{self, Report};
use roadstead_testkit::eventually;
use tonic::Code;
use uuid::Uuid;

use crate::world::{LONG, World, command, create_sandbox, principal, root};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_is_set_aside_with_a_row_and_holds_nothing_up() {
    let mut world = World::new().await;
    world.workspace("w").await;
    let sandbox = world.sandbox("w", "box").await.metadata.unwrap().id;
    let supervisor = world.supervisor(&sandbox, 1);
    let subject = subject::command(Method::CreateSandbox);
    let send = async |principal, method: &str, to: &str| {
        let command = command(method, principal, &create_sandbox("w", "evil", ""), Duration::from_secs(40));
        let id = Uuid::try_parse(&command.command_id).unwrap();
        let envelope: Bytes = world.edge.seal.seal_command(id, &command.encode_to_vec()).encode_to_vec().into();
        let reply = world.edge.bus.inbox().answer(id);
        world.edge.bus.enqueue(to, envelope, Some(&reply)).await.unwrap();
    };
    // A supervisor's principal on the users' queue, a method that is not the subject's, and noise.
    send(supervisor, Method::CreateSandbox.name(), &subject).await;
    send(principal(&root()), Method::DeleteSandbox.name(), &subject).await;
    world.edge.bus.enqueue(&subject, Bytes::from_static(b"noise"), None).await.unwrap();

    let mut side = world.session().await;
    let begun = std::time::Instant::now();
    while side.value("select count(*) from roadstead.set_aside").await != "3" {
        assert!(begun.elapsed() < LONG, "poison is still in the queue");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(world.count("sandbox").await, 1);
    world.sandbox("w", "still-served").await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_no_replica_knows_is_offered_to_others_and_set_aside_with_a_row() {
    let world = World::new().await;
    world.workspace("w").await;
    let command = command("CreateLater", principal(&root()), &create_sandbox("w", "later", ""), LONG);
    let id = Uuid::try_parse(&command.command_id).unwrap();
    let envelope: Bytes = world.edge.seal.seal_command(id, &command.encode_to_vec()).encode_to_vec().into();
    let reply = world.edge.bus.inbox().answer(id);
    let sent = std::time::Instant::now();
    world.edge.bus.enqueue("roadstead.command.CreateLater", envelope, Some(&reply)).await.unwrap();
    // Meanwhile it holds nothing up.
    world.sandbox("w", "still-served").await;
    let side = tokio::sync::Mutex::new(world.session().await);
    eventually(LONG, "it is set aside", async || {
        side.lock().await.value("select count(*) from roadstead.set_aside where subject like '%.CreateLater'").await
            == "1"
    })
    .await;
    assert!(sent.elapsed() > Duration::from_secs(5), "a replica of a later version had no time to take it");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_speaks_for_itself_only_and_with_a_valid_token() {
    let world = World::new().await;
    world.workspace("w").await;
    let one = world.sandbox("w", "one").await.metadata.unwrap().id;
    let two = world.sandbox("w", "two").await.metadata.unwrap().id;
    let report = |id: &str| v1::ReportPolicyStatusRequest {
        sandbox_id: id.into(),
        version: 1,
        status: v1::PolicyStatus::Loaded.into(),
        ..Default::default()
    };
    let supervisor = world.supervisor(&one, 1);
    let told = world.bridge.report(&supervisor, Report::ReportPolicyStatus, &report(&two)).await.unwrap_err();
    assert_eq!(told.code(), Code::PermissionDenied);
    let told = world.bridge.report(&supervisor, Report::ReportPolicyStatus, &report(&one)).await.unwrap_err();
    assert_eq!(told.code(), Code::NotFound, "there is no revision yet");
    let old = world.supervisor(&one, 0);
    let told = world.bridge.report(&old, Report::ReportPolicyStatus, &report(&one)).await.unwrap_err();
    assert_eq!(told.code(), Code::Unauthenticated);

    // A token that a door made up.
    let mut forged = world.supervisor(&one, 1);
    if let Some(roadstead_proto::internal::principal::Kind::Sandbox(identity)) = &mut forged.kind {
        identity.token = identity.token.chars().rev().collect();
    }
    let told = world.bridge.report(&forged, Report::ReportPolicyStatus, &report(&one)).await.unwrap_err();
    assert_eq!(told.code(), Code::Unauthenticated);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refreshed_token_is_minted_anew_and_never_stored() {
    use roadstead_proto::role::Role;

    let mut world = World::new().await;
    world.workspace("w").await;
    let id = world.sandbox("w", "box").await.metadata.unwrap().id;
    let supervisor = world.supervisor(&id, 1);
    let request = v1::RefreshSandboxTokenRequest::default();
    let command = command(Report::RefreshSandboxToken.name(), supervisor, &request, Duration::from_secs(40));
    let subject = subject::report(Report::RefreshSandboxToken);
    let verifier = world.keys(Role::SupervisorBridge).token_verifier().unwrap();
    // The same command twice: its answer is not kept, so it is made again.
    for _ in 0..2 {
        let (body, _) = world.bridge.call(&subject, command.clone()).await.unwrap();
        let response = v1::RefreshSandboxTokenResponse::decode(body).unwrap();
        let identity = verifier.verify(&response.token, std::time::SystemTime::now()).unwrap();
        assert_eq!((identity.sandbox_id.to_string(), identity.generation), (id.clone(), 1));
        let kept = "select encode(body, 'hex') from roadstead.command where method = 'RefreshSandboxToken'";
        let kept = world.sql.value(kept).await;
        let hex = response.token.bytes().take(8).map(|byte| format!("{byte:02x}")).collect::<String>();
        assert!(!kept.is_empty() && !kept.contains(&hex), "{kept}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wiped_broker_is_furnished_again_and_left_marks_are_published() {
    let mut world = World::new().await;
    world.workspace("w").await;
    world.quiet().await;
    world.broker.stop().await;
    // A change that no admission made: only the poll can find its mark.
    world.sql.run("update roadstead.workspace set labels = '{\"a\": \"b\"}' where name = 'w'").await;
    world.broker.wipe().await;
    eventually(LONG, "the mark is stored in the new broker", || async {
        let mut side = world.session().await;
        side.value("select count(*) from roadstead.outbox").await == "0"
    })
    .await;
    world.sandbox("w", "box").await;
    world.stop().await;
}
