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
