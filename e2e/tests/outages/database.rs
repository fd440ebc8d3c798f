//! Postgres restarts, and a reply to a COMMIT is lost, while the system works.

use std::time::Duration;

use roadstead_e2e::{
    Fleet, Load,
    api::{client, request_id, scope},
    load,
};
use roadstead_proto::api::v1::{CreateSandboxRequest, SandboxSpec};
use roadstead_testkit::{
    Proxy, Stack, eventually, generate, soak,
    sql::Session,
    stack::{Plan, Role},
};
use tokio::sync::Mutex;

use crate::oracle::{SANDBOXES, assert_sound};

const SOON: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_postgres_under_load_fails_no_mutation_and_closes_no_session() {
    let mut stack = Stack::start(Plan::pairs().own_postgres()).await;
    let fleet = Fleet::start(&stack, SANDBOXES).await;
    let load = Load::start(&Fleet::edges(&stack), fleet.workspace(), &fleet.names());
    for _ in 0..soak::factor() {
        load.progress(40).await;
        stack.postgres().kill().await;
        stack.postgres().resume().await;
        load.progress(20).await;
    }
    let mutations = load.stop().await;
    load::assert_none_failed(&mutations);
    assert_sound(&stack, &fleet, &mutations).await;
    fleet.assert_watches_stayed();
    assert_eq!(fleet.sessions(), [1; SANDBOXES], "a session was lost");
}

/// Whether a session of admission waits for a lock: its second flight has begun and cannot end.
async fn admission_waits(session: &Mutex<Session>) -> bool {
    let sql = "select count(*) from pg_stat_activity where usename = 'roadstead_admission' \
               and datname = current_database() and wait_event_type = 'Lock'";
    session.lock().await.value(sql).await != "0"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_to_a_commit_still_gives_the_one_true_answer_and_one_effect() {
    let stack = Stack::start(Plan::pairs()).await;
    let session = Mutex::new(stack.session().await);
    let mut rival = stack.session().await;
    for id in [String::new(), request_id()] {
        let name = generate::unique("lost");
        // A rival's row of the same name, never committed, holds up the insert: the last thing before the COMMIT.
        rival
            .hold(&format!(
                "insert into roadstead.sandbox (id, workspace_id, workspace_name, name, phase, attachment_epoch) \
                 select gen_random_uuid(), id, name, '{name}', 1, gen_random_uuid() from roadstead.workspace \
                 where name = 'default'"
            ))
            .await;
        let request = CreateSandboxRequest {
            workspace_scope: scope("default"),
            name: name.clone(),
            spec: Some(SandboxSpec::default()),
            request_id: id,
            ..Default::default()
        };
        let mut api = client(&stack.edge(1));
        let call = tokio::spawn(async move { api.create_sandbox(request).await });
        eventually(SOON, "the insert waits", async || admission_waits(&session).await).await;
        let proxies: Vec<&Proxy> =
            [1, 2].map(|number| stack.node(Role::Admission, number).postgres.as_ref().unwrap()).to_vec();
        proxies.iter().for_each(|proxy| proxy.lose_replies());
        rival.release().await;
        let found = format!("select id from roadstead.sandbox where name = '{name}'");
        let row = eventually(SOON, "it is committed", async || {
            session.lock().await.run(&found).await.first().map(|row| row[0].clone())
        })
        .await;
        assert!(!call.is_finished(), "the answer came in spite of the lost reply");
        proxies.iter().for_each(|proxy| proxy.reset());
        let answer = call.await.unwrap().unwrap().into_inner();
        assert_eq!(answer.sandbox.unwrap().metadata.unwrap().id, row);
        assert_eq!(session.lock().await.run(&found).await.len(), 1);
    }
}
