//! The system under test itself: it starts, its parts can be hurt and come back.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use roadstead_proto::api::v1;
use roadstead_testkit::{
    Stack, eventually, generate,
    stack::{Plan, Role},
};
use tokio::task::JoinSet;

const SOON: Duration = Duration::from_secs(30);

/// A mutation and a read, by the operator's commands.
async fn works(stack: &Stack, workspace: &str) {
    stack.run(&["workspace", "create", workspace]).await;
    eventually(SOON, "the workspace is listed", async || {
        stack.run(&["workspace", "list", "-o", "json"]).await.contains(workspace)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_system_of_one_each_serves_and_stops_in_order() {
    let mut stack = Stack::start(Plan::single()).await;
    works(&stack, &generate::unique("ws")).await;
    let mut session = stack.session().await;
    assert_ne!(session.value("select count(*) from roadstead.workspace").await, "0");
    for role in Role::ALL.into_iter().rev() {
        stack.node_mut(role, 1).stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_system_of_pairs_outlives_the_crash_of_one_of_each() {
    let mut stack = Stack::start(Plan::pairs()).await;
    for role in Role::ALL {
        stack.node_mut(role, 2).kill().await;
    }
    works(&stack, &generate::unique("ws")).await;
    for role in Role::ALL {
        stack.node_mut(role, 2).resume();
    }
    for role in Role::ALL {
        stack.node_mut(role, 2).ready().await;
        stack.node_mut(role, 1).kill().await;
    }
    stack.node_mut(Role::Edge, 1).resume();
    stack.node_mut(Role::Edge, 1).ready().await;
    works(&stack, &generate::unique("ws")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_system_gets_over_the_loss_of_its_broker_and_its_database() {
    let mut stack = Stack::start(Plan::single().own_postgres()).await;
    works(&stack, &generate::unique("ws")).await;
    stack.broker().wipe().await;
    stack.postgres().kill().await;
    stack.postgres().resume().await;
    let workspace = generate::unique("ws");
    eventually(SOON, "a mutation goes through", async || {
        let output = stack.command(&["workspace", "create", &workspace]).output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // The answer of an attempt may have been lost with the broker.
        if output.status.success() || said.contains("already") { Ok(()) } else { Err(said) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_calls_on_one_connection_is_answered_whole() {
    let stack = Stack::start(Plan::single()).await;
    let client = roadstead_e2e::api::client(&stack.edge(1));
    let mut calls = JoinSet::new();
    for number in 0..200 {
        let mut client = client.clone();
        let request = v1::CreateWorkspaceRequest { name: format!("burst-{number}"), ..Default::default() };
        calls.spawn(async move { client.create_workspace(request).await });
    }
    for answer in calls.join_all().await {
        answer.unwrap();
    }
    let created = "select count(*) from roadstead.workspace where name like 'burst-%'";
    assert_eq!(stack.session().await.value(created).await, "200");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_settles_a_command_and_brings_a_workspace_back() {
    let stack = Stack::start(Plan::single()).await;
    let mut session = stack.session().await;
    // No method that is served has two steps: the row that one would leave.
    let id = uuid::Uuid::now_v7().to_string();
    session
        .run(&format!(
            "insert into roadstead.command (id, method, caller, deadline, outcome) \
             values ('{id}', 'RotateProviderCredential', 'c', now(), 0); \
             insert into roadstead.effect (command_id, method, caller, claimed, until) \
             values ('{id}', 'RotateProviderCredential', 'c', false, now() - interval '1 second')"
        ))
        .await;
    assert!(stack.run(&["admission", "list"]).await.contains(&id));
    assert!(stack.run(&["admission", "list", "-o", "json"]).await.contains(&format!(r#""commandId":"{id}""#)));
    assert!(stack.run(&["admission", "show", &id]).await.contains("started"));
    let by = ["--reason", "the provider knows nothing of it", "--operator", "ann"];
    stack.run(&[&["admission", "settle", &id, "--as", "failed"], &by[..]].concat()).await;
    let shown = stack.run(&["admission", "show", &id]).await;
    assert!(shown.contains("settled as failed by ann") && shown.contains("knows nothing of it"), "{shown}");
    assert!(!stack.run(&["admission", "list"]).await.contains(&id));

    let workspace = generate::unique("ws");
    stack.run(&["workspace", "create", &workspace]).await;
    stack.run(&["sandbox", "create", "box", "-w", &workspace]).await;
    let blocked = stack.command(&["workspace", "delete", &workspace]).output().await.unwrap();
    assert!(!blocked.status.success());
    let phase = async |phase: &str| {
        eventually(SOON, phase, async || stack.run(&["workspace", "get", &workspace]).await.contains(phase)).await;
    };
    phase("TERMINATING").await;
    stack.run(&[&["workspace", "reactivate", &workspace], &by[..]].concat()).await;
    phase("ACTIVE").await;
    stack.run(&["sandbox", "create", "more", "-w", &workspace]).await;
}
