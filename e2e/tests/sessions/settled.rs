//! S5: every accepted revision comes to an end, also one that changes nothing.

use std::time::Duration;

use roadstead_e2e::api::{request_id, scope};
use roadstead_e2e::policy::to_host;
use roadstead_proto::api::v1::{AttachSandboxProviderRequest, PolicyStatus, UpdateConfigRequest};
use roadstead_testkit::stack::{Plan, Role};
use roadstead_testkit::{eventually, sql::Session};
use tokio::sync::Mutex;

use crate::world::{CROWD, World};

const SETTLED: Duration = Duration::from_secs(5);

/// All revisions, of sandboxes and of the deployment, have settled.
async fn none_pends(session: &Mutex<Session>) {
    const PENDING: &str = "select scope, version from roadstead.policy_revision where status = 1";
    eventually(SETTLED + CROWD, "no revision is pending", async || {
        let pending = session.lock().await.run(PENDING).await;
        if pending.is_empty() { Ok(()) } else { Err(format!("{pending:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_accepted_revision_settles_also_one_that_changes_nothing_or_is_never_sent() {
    let world = World::start(Plan::single()).await;
    let session = Mutex::new(world.stack.session().await);
    world.provider("idle", "IDLE_TOKEN").await;
    let _supervised = world.ready_sandbox("calm", &[]).await;
    none_pends(&session).await;
    let first = world.revision("calm", 1).await;
    assert_eq!(first.status(), PolicyStatus::Loaded, "the very first");

    let policy = to_host("calm.example", None);
    let (changed, _) = world.set_policy("calm", policy.clone()).await;
    none_pends(&session).await;
    assert_eq!(world.revision("calm", changed.version).await.status(), PolicyStatus::Loaded);
    assert_eq!(world.revision("calm", 1).await.status(), PolicyStatus::Superseded);
    let loaded = world.revision("calm", 1).await.loaded_time;
    assert_eq!(loaded, first.loaded_time, "the first has settled once");

    let (same, _) = world.set_policy("calm", policy.clone()).await;
    assert_eq!((same.version, &same.policy_hash), (changed.version, &changed.policy_hash), "not a revision");

    // The same policy for another reason is one.
    let request = UpdateConfigRequest {
        policy: Some(policy),
        annotations: [("reason".to_owned(), "again".to_owned())].into(),
        ..world.update("calm")
    };
    let again = world.api().update_config(request).await.unwrap().into_inner();
    assert_eq!((again.version, &again.policy_hash), (changed.version + 1, &changed.policy_hash));
    none_pends(&session).await;
    assert_eq!(world.revision("calm", again.version).await.status(), PolicyStatus::Loaded);

    let attach = AttachSandboxProviderRequest {
        workspace_scope: scope(&world.workspace),
        sandbox: "calm".to_owned(),
        provider: "idle".to_owned(),
        request_id: request_id(),
        ..Default::default()
    };
    world.api().attach_sandbox_provider(attach).await.unwrap();
    none_pends(&session).await;

    // A policy of the whole deployment comes over one that no snapshot has shown yet.
    let builder = world.stack.node(Role::ConfigSnapshot, 1).victim();
    builder.freeze();
    world.set_policy("calm", to_host("shadowed.example", None)).await;
    let global = UpdateConfigRequest {
        global: true,
        policy: Some(to_host("everywhere.example", None)),
        request_id: request_id(),
        ..Default::default()
    };
    world.api().update_config(global).await.unwrap();
    builder.thaw();
    none_pends(&session).await;

    let lifted = UpdateConfigRequest {
        global: true,
        setting_key: "policy".to_owned(),
        delete_setting: true,
        request_id: request_id(),
        ..Default::default()
    };
    world.api().update_config(lifted).await.unwrap();
    none_pends(&session).await;
}
