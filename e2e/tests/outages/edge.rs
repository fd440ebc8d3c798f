//! `kill -9` and restart of edges: the only process whose death its callers see.

use std::time::Duration;

use roadstead_e2e::{
    Fleet, Load,
    api::{client, is_replay, request_id, scope},
    effect::Told,
    load,
};
use roadstead_proto::api::v1::{CreateSandboxRequest, SandboxSpec};
use roadstead_testkit::{
    Stack, eventually,
    proxy::Direction,
    soak,
    stack::{Plan, Role},
};
use tonic::Code;

use crate::oracle::{SANDBOXES, assert_sound};

const SOON: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn of_a_killed_edge_only_its_own_calls_break_and_the_other_edge_tells_their_outcome_by_id() {
    let mut stack = Stack::start(Plan::pairs()).await;
    let fleet = Fleet::start(&stack, SANDBOXES).await;
    let load = Load::start(&Fleet::edges(&stack), fleet.workspace(), &fleet.names());
    load.progress(40).await;
    for _ in 0..soak::factor() {
        stack.node_mut(Role::Edge, 1).kill().await;
        load.progress(20).await;
        stack.node_mut(Role::Edge, 1).resume();
        stack.node_mut(Role::Edge, 1).ready().await;
        load.progress(20).await;
    }
    let mutations = load.stop().await;
    load::assert_failures_are(&mutations, |one| one.edge == 0);
    assert_sound(&stack, &fleet, &mutations).await;
    assert_eq!(fleet.sessions(), [1; SANDBOXES], "a session was lost");
    for watch in fleet.members().iter().flat_map(|member| &member.watches) {
        let broken = watch.seen().breaks();
        assert!(broken <= 2 * soak::factor() as usize, "a watch broke {broken} times");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mutation_whose_edge_died_before_the_answer_came_is_replayed_by_the_other_edge() {
    let mut stack = Stack::start(Plan::pairs()).await;
    let mut session = stack.session().await;
    for round in 0..soak::count(1) {
        let name = format!("orphan-{round}");
        let request = CreateSandboxRequest {
            workspace_scope: scope("default"),
            name: name.clone(),
            spec: Some(SandboxSpec::default()),
            request_id: request_id(),
            ..Default::default()
        };
        let count = format!("select count(*) from roadstead.sandbox where name = '{name}'");
        stack.node(Role::Edge, 1).nats.halt_at(Direction::ToClient, "_INBOX_edge.*.answer");
        let call = tokio::spawn({
            let (mut api, request) = (client(&stack.edge(1)), request.clone());
            async move { api.create_sandbox(request).await }
        });
        let rows = tokio::sync::Mutex::new(&mut session);
        eventually(SOON, "the effect is there", async || rows.lock().await.value(&count).await == "1").await;
        let edge = stack.node_mut(Role::Edge, 1);
        edge.kill().await;
        edge.nats.heal();
        let status = call.await.unwrap().unwrap_err();
        assert!(matches!(Told::by(&status), Told::Unknown(_)), "{status:?}");
        assert_ne!(status.code(), Code::DeadlineExceeded, "it took as long as nobody wants to wait");
        let answer = client(&stack.edge(2)).create_sandbox(request).await.unwrap();
        assert!(is_replay(answer.metadata()));
        assert_eq!(session.value(&count).await, "1");
        stack.node_mut(Role::Edge, 1).resume();
        stack.node_mut(Role::Edge, 1).ready().await;
    }
}
