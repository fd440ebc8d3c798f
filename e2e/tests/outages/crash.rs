//! An admission dies at any moment around the commit of a creation with a request id.

use std::{collections::BTreeMap, time::Duration};

use roadstead_e2e::api::{client, is_replay, reason, request_id, scope};
use roadstead_proto::api::v1::{CreateSandboxRequest, SandboxSpec};
use roadstead_testkit::{
    Stack, soak,
    sql::Session,
    stack::{Plan, Role},
};
use tokio::task::JoinSet;
use tonic::{Code, Status};
use uuid::Uuid;

/// Creations for each kill; each is sent at a moment of its own before it.
const CREATIONS: usize = 15;
/// The longest time from a creation to the kill.
const WITHIN: Duration = Duration::from_millis(200);
/// The broker gives a command of the dead to somebody else after 5 s.
const SOON: Duration = Duration::from_secs(15);

/// The id of the sandbox that a creation tells of, and whether it is a replay.
type Answer = Result<(String, bool), Status>;

fn creations(round: u32) -> Vec<CreateSandboxRequest> {
    let creation = |number: usize| CreateSandboxRequest {
        workspace_scope: scope("default"),
        name: format!("crash-{round}-{number}"),
        spec: Some(SandboxSpec::default()),
        request_id: request_id(),
        ..Default::default()
    };
    (0..CREATIONS).map(creation).collect()
}

/// Sends each of the creations after a pause that `pause` gives; the answers by name.
fn send(edge: &str, creations: &[CreateSandboxRequest], pause: impl Fn() -> Duration) -> JoinSet<(String, Answer)> {
    let mut calls = JoinSet::new();
    for request in creations.iter().cloned() {
        let (mut api, pause) = (client(edge), pause());
        calls.spawn(async move {
            tokio::time::sleep(pause).await;
            let name = request.name.clone();
            let answer = api.create_sandbox(request).await;
            let told = answer.map(|answer| {
                let replayed = is_replay(answer.metadata());
                (answer.into_inner().sandbox.unwrap().metadata.unwrap().id, replayed)
            });
            (name, told)
        });
    }
    calls
}

async fn answers(calls: JoinSet<(String, Answer)>) -> BTreeMap<String, Answer> {
    tokio::time::timeout(SOON, calls.join_all()).await.expect("all are answered in time").into_iter().collect()
}

async fn ids(session: &mut Session) -> BTreeMap<String, Vec<String>> {
    let mut ids = BTreeMap::<String, Vec<String>>::new();
    for mut row in session.run("select name, id from roadstead.sandbox where name like 'crash-%'").await {
        let id = row.pop().unwrap();
        ids.entry(row.pop().unwrap()).or_default().push(id);
    }
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admission_killed_around_a_commit_leaves_one_effect_and_its_request_id_replays_it() {
    let mut stack = Stack::start(Plan::pairs()).await;
    let mut session = stack.session().await;
    let mut all = Vec::new();
    for round in 0..soak::count(1) {
        let creations = creations(round);
        let at_random = || WITHIN.mul_f64(f64::from(Uuid::new_v4().as_fields().0) / f64::from(u32::MAX));
        let first = send(&stack.edge(1), &creations, at_random);
        tokio::time::sleep(WITHIN).await;
        let victim = 1 + round as usize % 2;
        stack.node_mut(Role::Admission, victim).kill().await;
        // Duplicates while nobody knows what became of the first ones, and again when the dead is back.
        let second = answers(send(&stack.edge(2), &creations, Duration::default)).await;
        let first = answers(first).await;
        stack.node_mut(Role::Admission, victim).resume();
        stack.node_mut(Role::Admission, victim).ready().await;
        let third = answers(send(&stack.edge(1), &creations, Duration::default)).await;

        let effects = ids(&mut session).await;
        for name in creations.iter().map(|creation| &creation.name) {
            let [id] = effects[name].as_slice() else { panic!("{name} has {:?}", effects[name]) };
            for answer in [&first[name], &second[name]] {
                match answer {
                    Ok((told, _)) => assert_eq!(told, id, "{name}"),
                    Err(status) => assert_eq!(reason(status), "REQUEST_OUTCOME_UNCERTAIN", "{name}: {status:?}"),
                }
            }
            assert_eq!(third[name].as_ref().unwrap(), &(id.clone(), true), "{name}");
        }
        all.extend(creations);
    }
    nothing_is_unresolved(&stack, &mut session).await;

    // A day later the request ids are forgotten. The names are still taken.
    let before = ids(&mut session).await;
    let day = "interval '25 hours'";
    session
        .run(&format!(
            "update roadstead.claim set created_at = created_at - {day}, completed_at = completed_at - {day}"
        ))
        .await;
    for (name, answer) in answers(send(&stack.edge(2), &all, Duration::default)).await {
        assert_eq!(answer.unwrap_err().code(), Code::AlreadyExists, "{name}");
    }
    assert_eq!(ids(&mut session).await, before);
}

/// No claim is without an outcome, and both admissions say so.
async fn nothing_is_unresolved(stack: &Stack, session: &mut Session) {
    assert_eq!(session.value("select count(*) from roadstead.claim where completed_at is null").await, "0");
    for number in [1, 2] {
        let metrics = stack.node(Role::Admission, number).metrics().await;
        let line = metrics.lines().find(|line| line.starts_with("roadstead_claims_unresolved")).unwrap();
        assert!(line.ends_with(" 0"), "{line}");
    }
}
