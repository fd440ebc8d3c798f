//! From a command to its answer, its rows and its marks.

use std::collections::BTreeMap;
use std::time::Duration;

use prost::Message as _;
use roadstead_proto::api::datamodel::{ObjectMeta, Provider, WorkspacePhase};
use roadstead_proto::api::v1::{self, DeletionOutcome, SandboxPhase};
use roadstead_proto::method::Method;
use roadstead_proto::stream::Stream;
use roadstead_testkit::eventually;
use tonic::Code;

use crate::world::{LONG, World, create_sandbox, root, sandbox_of, scope, user_named};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_and_a_sandbox_are_created_answered_and_marked() {
    let mut world = World::new().await;
    let request = v1::CreateWorkspaceRequest { name: "w".into(), ..Default::default() };
    let (body, replayed) = world.edge.user_call(&root(), Method::CreateWorkspace, &request).await.unwrap();
    let workspace = v1::CreateWorkspaceResponse::decode(body).unwrap().workspace.unwrap();
    assert!(!replayed);
    assert_eq!(workspace.status.unwrap().phase(), WorkspacePhase::Active);
    let workspace_id = workspace.metadata.unwrap().id;

    let created = world.sandbox("w", "box").await;
    let metadata = created.metadata.clone().unwrap();
    assert_eq!((metadata.name.as_str(), metadata.workspace.as_str(), metadata.resource_version), ("box", "w", 1));
    assert_eq!(created.status.unwrap().phase(), SandboxPhase::Provisioning);

    world.quiet().await;
    let marks = subjects(&world, Stream::Changes).await;
    assert!(marks.contains_key(&format!("roadstead.change.workspace.{workspace_id}.{workspace_id}")), "{marks:?}");
    assert!(marks.contains_key(&format!("roadstead.change.sandbox.{workspace_id}.{}", metadata.id)), "{marks:?}");
    let dirty = subjects(&world, Stream::Dirty).await;
    assert!(dirty.contains_key(&format!("roadstead.dirty.one.{workspace_id}.{}", metadata.id)), "{dirty:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_and_rights_count_from_their_commit_on() {
    let world = World::new().await;
    world.workspace("w").await;
    let ann = user_named("ann", false);
    let create = create_sandbox("w", "box", "");
    let denied = world.edge.user_call(&ann, Method::CreateSandbox, &create).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    assert!(denied.message().contains("not a member of workspace 'w'"));

    let add = v1::AddWorkspaceMemberRequest {
        workspace_scope: scope("w"),
        principal_subject: "ann".into(),
        role: v1::WorkspaceRole::User.into(),
        ..Default::default()
    };
    world.edge.user_call(&root(), Method::AddWorkspaceMember, &add).await.unwrap();
    world.edge.user_call(&ann, Method::CreateSandbox, &create).await.unwrap();
    let again = world.edge.user_call(&root(), Method::AddWorkspaceMember, &add).await.unwrap_err();
    assert_eq!(again.code(), Code::AlreadyExists);

    let remove = v1::RemoveWorkspaceMemberRequest {
        workspace_scope: scope("w"),
        principal_subject: "ann".into(),
        ..Default::default()
    };
    world.edge.user_call(&root(), Method::RemoveWorkspaceMember, &remove).await.unwrap();
    let stop = v1::StopSandboxRequest { name: "box".into(), workspace_scope: scope("w"), ..Default::default() };
    let denied = world.edge.user_call(&ann, Method::StopSandbox, &stop).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_with_something_left_stays_terminating_until_it_is_empty() {
    let mut world = World::new().await;
    world.workspace("w").await;
    world.sandbox("w", "box").await;
    let delete = v1::DeleteWorkspaceRequest { name: "w".into(), ..Default::default() };
    let blocked = world.edge.user_call(&root(), Method::DeleteWorkspace, &delete).await.unwrap_err();
    assert_eq!(blocked.code(), Code::FailedPrecondition);
    assert!(blocked.message().contains("still contains resources"), "{}", blocked.message());
    let refused =
        world.edge.user_call(&root(), Method::CreateSandbox, &create_sandbox("w", "more", "")).await.unwrap_err();
    assert!(refused.message().contains("being deleted"), "{}", refused.message());

    let gone = v1::DeleteSandboxRequest { name: "box".into(), workspace_scope: scope("w"), ..Default::default() };
    let (body, _) = world.edge.user_call(&root(), Method::DeleteSandbox, &gone).await.unwrap();
    assert_eq!(v1::DeleteSandboxResponse::decode(body).unwrap().outcome(), DeletionOutcome::Completed);
    let (body, _) = world.edge.user_call(&root(), Method::DeleteWorkspace, &delete).await.unwrap();
    assert_eq!(v1::DeleteWorkspaceResponse::decode(body).unwrap().outcome(), DeletionOutcome::Completed);
    assert_eq!(world.count("workspace where name = 'w'").await, 0);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn providers_are_created_attached_changed_and_never_shown() {
    let mut world = World::new().await;
    world.workspace("w").await;
    world.sandbox("w", "box").await;
    let provider = |value: &str| Provider {
        metadata: Some(ObjectMeta { name: "git".into(), ..Default::default() }),
        r#type: "generic".into(),
        credentials: [("GIT_TOKEN".to_owned(), value.to_owned())].into(),
        ..Default::default()
    };
    let create = v1::CreateProviderRequest {
        provider: Some(provider("canary-one")),
        workspace_scope: scope("w"),
        ..Default::default()
    };
    world.edge.user_call(&root(), Method::CreateProvider, &create).await.unwrap();
    let attach = v1::AttachSandboxProviderRequest {
        sandbox: "box".into(),
        provider: "git".into(),
        workspace_scope: scope("w"),
        ..Default::default()
    };
    let (body, _) = world.edge.user_call(&root(), Method::AttachSandboxProvider, &attach).await.unwrap();
    let attached = v1::AttachSandboxProviderResponse::decode(body).unwrap();
    assert!(attached.attached);
    assert_eq!(attached.sandbox.unwrap().spec.unwrap().providers, ["git"]);
    let (body, _) = world.edge.user_call(&root(), Method::AttachSandboxProvider, &attach).await.unwrap();
    assert!(!v1::AttachSandboxProviderResponse::decode(body).unwrap().attached);

    let update = v1::UpdateProviderRequest {
        provider: Some(Provider { r#type: String::new(), ..provider("canary-two") }),
        workspace_scope: scope("w"),
        ..Default::default()
    };
    let (body, _) = world.edge.user_call(&root(), Method::UpdateProvider, &update).await.unwrap();
    let updated = v1::ProviderResponse::decode(body).unwrap();
    assert_eq!(updated.target_receipts.len(), 1);
    assert_eq!(updated.provider.unwrap().credentials["GIT_TOKEN"], "REDACTED");

    let delete = v1::DeleteProviderRequest { name: "git".into(), workspace_scope: scope("w"), ..Default::default() };
    let refused = world.edge.user_call(&root(), Method::DeleteProvider, &delete).await.unwrap_err();
    assert!(refused.message().contains("box"), "{}", refused.message());
    let detach = v1::DetachSandboxProviderRequest {
        sandbox: "box".into(),
        provider: "git".into(),
        workspace_scope: scope("w"),
        ..Default::default()
    };
    world.edge.user_call(&root(), Method::DetachSandboxProvider, &detach).await.unwrap();
    world.edge.user_call(&root(), Method::DeleteProvider, &delete).await.unwrap();
    let held =
        world.sql.run("select t::text from roadstead.command t union all select t::text from roadstead.claim t").await;
    let canary = hex("canary-");
    assert!(held.iter().flatten().all(|row| !row.contains("canary-") && !row.contains(&canary)));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_and_policies_follow_their_rules() {
    use roadstead_proto::api::sandbox::{SandboxPolicy, SettingValue, setting_value::Value};

    let world = World::new().await;
    world.workspace("w").await;
    world.sandbox("w", "box").await;
    let setting = |global: bool, on: bool| v1::UpdateConfigRequest {
        sandbox: if global { String::new() } else { "box".into() },
        workspace_scope: if global { None } else { scope("w") },
        global,
        setting_key: "ocsf_json_enabled".into(),
        setting_value: Some(SettingValue { value: Some(Value::BoolValue(on)) }),
        ..Default::default()
    };
    let update = async |request: v1::UpdateConfigRequest| {
        let told = world.edge.user_call(&root(), Method::UpdateConfig, &request).await;
        told.map(|(body, _)| v1::UpdateConfigResponse::decode(body).unwrap())
    };
    let delete = |request: v1::UpdateConfigRequest| v1::UpdateConfigRequest {
        setting_value: None,
        delete_setting: true,
        ..request
    };
    assert_eq!(update(setting(false, true)).await.unwrap().settings_revision, 1);
    assert_eq!(update(setting(false, true)).await.unwrap().settings_revision, 1);
    assert!(update(delete(setting(false, true))).await.unwrap().deleted);
    update(setting(true, false)).await.unwrap();
    let managed = update(setting(false, true)).await.unwrap_err();
    assert!(managed.message().contains("is managed"), "{}", managed.message());
    assert!(update(delete(setting(true, true))).await.unwrap().deleted);

    let policy = |version: u32| v1::UpdateConfigRequest {
        sandbox: "box".into(),
        workspace_scope: scope("w"),
        policy: Some(SandboxPolicy { version, ..Default::default() }),
        ..Default::default()
    };
    assert_eq!(update(policy(1)).await.unwrap().version, 1);
    assert_eq!(update(policy(1)).await.unwrap().version, 1);
    assert_eq!(update(policy(2)).await.unwrap().version, 2);
    let global = v1::UpdateConfigRequest { sandbox: String::new(), workspace_scope: None, global: true, ..policy(7) };
    assert_eq!(update(global.clone()).await.unwrap().version, 1);
    assert_eq!(update(policy(3)).await.unwrap_err().code(), Code::FailedPrecondition);
    let remove = v1::UpdateConfigRequest {
        global: true,
        setting_key: "policy".into(),
        delete_setting: true,
        ..Default::default()
    };
    assert!(update(remove).await.unwrap().deleted);
    assert_eq!(update(policy(3)).await.unwrap().version, 3);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_without_a_name_gets_one() {
    let world = World::new().await;
    world.workspace("w").await;
    let told = world.edge.user_call(&root(), Method::CreateSandbox, &create_sandbox("w", "", "")).await;
    let name = sandbox_of(told).metadata.unwrap().name;
    assert_eq!(name.split('-').count(), 2, "{name}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_lets_what_was_taken_finish() {
    let mut world = World::new().await;
    world.workspace("w").await;
    let calls = (0..40).map(|at| {
        let (edge, request) = (world.edge.clone(), create_sandbox("w", &format!("box-{at}"), ""));
        tokio::spawn(async move { edge.user_call(&root(), Method::CreateSandbox, &request).await })
    });
    let calls = calls.collect::<Vec<_>>();
    world.start_replica().await;
    let first = world.replicas.remove(0);
    let stopped = World::stop_one(first);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    stopped.await;
    assert_eq!(world.count("sandbox").await, 40);
    world.stop().await;
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// Subjects that the stream holds, with their counts.
pub(crate) async fn subjects(world: &World, stream: Stream) -> BTreeMap<String, u64> {
    let name = stream.config().name;
    eventually(LONG, "the stream is described", || async {
        let request = r#"{"subjects_filter":">"}"#.into();
        let subject = format!("$JS.API.STREAM.INFO.{name}");
        let admission = world.admission_bus().await;
        let reply = admission.request(subject, request, Duration::from_secs(2)).await.ok()?;
        let info: serde_json::Value = serde_json::from_slice(&reply).ok()?;
        let subjects = info["state"]["subjects"].as_object().cloned().unwrap_or_default();
        Some(subjects.into_iter().map(|(subject, count)| (subject, count.as_u64().unwrap_or(0))).collect())
    })
    .await
}
