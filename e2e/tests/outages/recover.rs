//! Postgres is put back to an earlier time under everybody who uses it.

use roadstead_e2e::{
    Fleet, Watched,
    api::{client, request_id, scope},
    convergence::{self, CONVERGENCE},
    policy::to_host,
};
use roadstead_proto::api::v1::{
    CreateSandboxRequest, DeleteSandboxRequest, SandboxPhase, SandboxSpec, UpdateConfigRequest,
};
use roadstead_testkit::{
    Stack,
    stack::{Plan, Role},
};

use crate::oracle::SANDBOXES;

async fn create(stack: &Stack, workspace: &str, name: &str) {
    let request = CreateSandboxRequest {
        workspace_scope: scope(workspace),
        name: name.to_owned(),
        spec: Some(SandboxSpec::default()),
        request_id: request_id(),
        ..Default::default()
    };
    client(&stack.edge(1)).create_sandbox(request).await.unwrap();
}

async fn set_policy(stack: &Stack, workspace: &str, name: &str, host: &str) {
    let request = UpdateConfigRequest {
        workspace_scope: scope(workspace),
        sandbox: name.to_owned(),
        policy: Some(to_host(host, None)),
        request_id: request_id(),
        ..Default::default()
    };
    client(&stack.edge(1)).update_config(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_put_back_to_an_earlier_time_wins_once_its_epoch_was_raised() {
    let mut stack = Stack::start(Plan::pairs().own_postgres()).await;
    let fleet = Fleet::start(&stack, SANDBOXES).await;
    let (workspace, names) = (fleet.workspace(), fleet.names());
    create(&stack, workspace, "deleted").await;
    set_policy(&stack, workspace, &names[0], "kept.example.com").await;
    convergence::assert_converges(&stack, &fleet).await;
    stack.postgres().save().await;
    convergence::assert_converges(&stack, &fleet).await;

    // A life that will not have been: policies, a sandbox more and one less, and other sessions.
    for host in ["lost-1.example.com", "lost-2.example.com"] {
        for name in &names[..2] {
            set_policy(&stack, workspace, name, host).await;
        }
    }
    create(&stack, workspace, "later").await;
    let later = Watched::open(&Fleet::edges(&stack), workspace, "later");
    later.until(CONVERGENCE, "it is there", |seen| seen.has_shown(SandboxPhase::Provisioning)).await;
    let delete = DeleteSandboxRequest {
        workspace_scope: scope(workspace),
        name: "deleted".to_owned(),
        request_id: request_id(),
        ..Default::default()
    };
    client(&stack.edge(1)).delete_sandbox(delete).await.unwrap();
    stack.node_mut(Role::SupervisorBridge, 1).crash().await;
    convergence::assert_converges(&stack, &fleet).await;
    let sessions = fleet.sessions();

    stack.postgres().restore().await;
    let url = stack.postgres().owner().url();
    let keys = stack.keys_of("owner");
    let recover = ["recover", "--database-url", &url, "--owner-keys", keys.to_str().unwrap()];
    let raised = stack.run(&recover).await;
    assert!(raised.starts_with("the epoch was 1 and is "), "{raised}");

    convergence::assert_converges(&stack, &fleet).await;
    later.until(CONVERGENCE, "it was never there", roadstead_e2e::watched::Seen::is_over).await;
    let deleted = Watched::open(&Fleet::edges(&stack), workspace, "deleted");
    deleted.until(CONVERGENCE, "it is there again", |seen| seen.current().is_some()).await;
    assert!(fleet.sessions().iter().zip(&sessions).all(|(now, before)| now > before), "a session was kept");
    // The new life goes on.
    set_policy(&stack, workspace, &names[0], "new.example.com").await;
    convergence::assert_converges(&stack, &fleet).await;
}
