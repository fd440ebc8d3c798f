//! Every process is replaced while users stop and delete sandboxes whose supervisors would rather go on.

use std::time::Duration;

use roadstead_e2e::api::{client, request_id, scope};
use roadstead_e2e::{Fleet, Watched};
use roadstead_proto::api::v1::{
    CreateSandboxRequest, DeleteSandboxRequest, SandboxPhase, SandboxSpec, StopSandboxRequest,
};
use roadstead_testkit::stack::{Plan, Role};
use roadstead_testkit::{Stack, eventually};
use tokio::task::JoinSet;

const SOON: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn what_users_stop_and_delete_while_everything_restarts_stays_so_and_a_namesake_is_left_alone() {
    let mut stack = Stack::start(Plan::pairs()).await;
    let fleet = Fleet::start(&stack, 4).await;
    let names = fleet.names();
    let (stopped, deleted) = names.split_at(2);
    let ids = "select name, id from roadstead.sandbox where name like 'agent-%'";
    let before = stack.session().await.run(ids).await;

    let mut calls = JoinSet::new();
    for (at, name) in names.iter().enumerate() {
        let (api, name) = (client(&stack.edge(1 + at % 2)), name.clone());
        let (is_stop, workspace_scope) = (stopped.contains(&name), scope(fleet.workspace()));
        calls.spawn(async move {
            let request_id = request_id();
            // With an id a call may be repeated until an edge answers it.
            eventually(SOON, "the call is answered", async || {
                if is_stop {
                    let (name, workspace_scope, request_id) =
                        (name.clone(), workspace_scope.clone(), request_id.clone());
                    let request = StopSandboxRequest { workspace_scope, name, request_id };
                    api.clone().stop_sandbox(request).await.map(drop)
                } else {
                    let request = DeleteSandboxRequest {
                        workspace_scope: workspace_scope.clone(),
                        name: name.clone(),
                        request_id: request_id.clone(),
                        ..Default::default()
                    };
                    api.clone().delete_sandbox(request).await.map(drop)
                }
            })
            .await;
        });
    }
    for role in Role::ALL {
        for number in [1, 2] {
            stack.node_mut(role, number).kill().await;
            stack.node_mut(role, number).resume();
        }
        for number in [1, 2] {
            stack.node_mut(role, number).ready().await;
        }
    }
    calls.join_all().await;

    // The name of one that was deleted is taken again at once, as soon as that is possible.
    let again = &deleted[0];
    eventually(SOON, "the name is free", async || {
        client(&stack.edge(1)).create_sandbox(creation(fleet.workspace(), again)).await.map(drop)
    })
    .await;
    let states = "select name, phase from roadstead.sandbox order by name";
    let expected = |name: &str, phase: SandboxPhase| vec![name.to_owned(), (phase as i32).to_string()];
    eventually(SOON, "all is as users said", async || {
        let rows = stack.session().await.run(states).await;
        let wanted = [
            expected(&stopped[0], SandboxPhase::Stopped),
            expected(&stopped[1], SandboxPhase::Stopped),
            expected(again, SandboxPhase::Provisioning),
        ];
        if rows == wanted { Ok(()) } else { Err(format!("{rows:?}")) }
    })
    .await;
    let after = stack.session().await.run(ids).await;
    let id_of = |rows: &[Vec<String>], name: &str| rows.iter().find(|row| row[0] == name).map(|row| row[1].clone());
    assert_ne!(id_of(&before, again), id_of(&after, again));
    for name in stopped {
        assert_eq!(id_of(&before, name), id_of(&after, name));
    }
    let undone = format!(
        "select * from journal.phase where before in ({}, {}) and after not in ({0}, {1}, {})",
        SandboxPhase::Stopped as i32,
        SandboxPhase::Stopping as i32,
        SandboxPhase::Deleting as i32
    );
    assert_eq!(stack.session().await.run(&undone).await, Vec::<Vec<String>>::new());

    // Who watches one that goes sees its end, however soon its name is taken again.
    let watch = Watched::open(&Fleet::edges(&stack), fleet.workspace(), &stopped[0]);
    watch.until(SOON, "it stopped", |seen| seen.has_shown(SandboxPhase::Stopped)).await;
    let (mut api, name) = (client(&stack.edge(2)), stopped[0].clone());
    let workspace_scope = scope(fleet.workspace());
    let request = DeleteSandboxRequest { workspace_scope, name: name.clone(), ..Default::default() };
    api.delete_sandbox(request).await.unwrap();
    api.create_sandbox(creation(fleet.workspace(), &name)).await.unwrap();
    let seen = watch.until(SOON, "its end", |seen| seen.is_over()).await;
    assert!(seen.shown().all(|(_, phase)| phase == SandboxPhase::Stopped), "{seen:?}");
}

fn creation(workspace: &str, name: &str) -> CreateSandboxRequest {
    CreateSandboxRequest {
        workspace_scope: scope(workspace),
        name: name.to_owned(),
        spec: Some(SandboxSpec::default()),
        ..Default::default()
    }
}
