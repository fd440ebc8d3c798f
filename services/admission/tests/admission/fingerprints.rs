//! A request id that was used for another request, seen from outside, by each replica and across restarts.

use std::time::Duration;

use prost_reflect::Value;
use roadstead_admission::ledger::ScopeRule;
use roadstead_admission::ledger::method_row::ROWS;
use roadstead_proto::method::Method;
use roadstead_proto::subject;
use roadstead_testkit::soak;
use roadstead_testkit::variation::{self, Change};

use crate::requests::{self, Request};
use crate::world::{Told, World, command, principal, reason, root};

/// Of so many changes one is asked in a plain run, of all in a soak.
const EVERY: usize = 9;
/// Questions on their way at a time.
const AT_ONCE: usize = 16;

#[derive(Debug)]
struct Question {
    method: Method,
    /// What was changed in the request that holds the id; nothing but the order, if there is none.
    change: Option<String>,
    request: Vec<u8>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_changed_in_a_request_its_id_is_refused_by_every_replica_and_its_order_does_not_matter() {
    let mut world = World::with(2, &[]).await;
    for request in requests::before("w") {
        ask(&world, request.method, request.bytes()).await.unwrap();
    }
    world.sql.run(requests::MEANWHILE).await;
    let mut questions = Vec::new();
    for request in requests::each("w").into_iter().map(Request::with_id) {
        let (_, replayed) = ask(&world, request.method, request.bytes()).await.unwrap();
        assert!(!replayed, "{}", request.method);
        questions.extend(questions_about(&request));
    }
    let secrets =
        questions.iter().filter(|asked| asked.change.as_ref().is_some_and(|change| change.contains("credentials: ")));
    assert!(secrets.count() >= 2, "a change of nothing but a credential is among them");

    let before = state(&mut world).await;
    all_refused(&world, &questions).await;
    // Each replica alone, and one that was started anew.
    let second = world.replicas.pop().unwrap();
    World::stop_one(second).await;
    all_refused(&world, &questions).await;
    world.start_replica().await;
    let first = world.replicas.remove(0);
    World::stop_one(first).await;
    all_refused(&world, &questions).await;
    assert_eq!(state(&mut world).await, before, "none of them had an effect");
    world.stop().await;
}

fn questions_about(request: &Request) -> Vec<Question> {
    let Request { method, message } = request;
    let mut changes = variation::changes(message);
    changes.retain(|change| !of_the_key(*method, &change.path));
    let step = if soak::factor() > 1 { 1 } else { EVERY };
    let sampled = |(at, change): (usize, &Change)| at % step == 0 || change.path.contains("credentials");
    let mut questions = (0..)
        .zip(&changes)
        .filter(|one| sampled(*one))
        .map(|(_, Change { path, what, message })| Question {
            method: *method,
            change: Some(format!("{path}: {what}")),
            request: Request { method: *method, message: message.clone() }.bytes(),
        })
        .collect::<Vec<_>>();
    let mut upper = message.clone();
    let id = message.get_field_by_name("request_id").unwrap().as_str().unwrap().to_uppercase();
    upper.set_field_by_name("request_id", Value::String(id));
    for same in [request.bytes(), Request { method: *method, message: upper }.bytes()] {
        let request = variation::reordered(&method.input_descriptor(), &same);
        questions.push(Question { method: *method, change: None, request });
    }
    questions
}

/// Whether the field says whose record is meant, so that another value is another story.
fn of_the_key(method: Method, path: &str) -> bool {
    let target = ROWS.iter().any(|row| row.method == method && row.scope == ScopeRule::TargetName);
    path == "request_id"
        || path.starts_with("workspace_scope")
        || (method == Method::UpdateConfig && path == "global")
        || (target && path == "name")
}

async fn all_refused(world: &World, questions: &[Question]) {
    for some in questions.chunks(AT_ONCE) {
        let asked = some.iter().map(|question| ask(world, question.method, question.request.clone()));
        for (question, told) in some.iter().zip(futures_util::future::join_all(asked).await) {
            match (&question.change, told) {
                (Some(_), Err(status)) if reason(&status) == Some("REQUEST_ID_PAYLOAD_MISMATCH") => {}
                (None, Ok((_, true))) => {}
                (_, told) => panic!("{question:?}: {told:?}"),
            }
        }
    }
}

async fn ask(world: &World, method: Method, request: Vec<u8>) -> Told {
    let mut command = command(method.name(), principal(&root()), &(), Duration::from_secs(40));
    command.request = request.into();
    world.edge.call(&subject::command(method), command).await
}

/// Everything but the ledger of commands, and the sequence that marks are numbered from.
async fn state(world: &mut World) -> Vec<String> {
    world.quiet().await;
    let mut state = Vec::new();
    for table in [
        "workspace",
        "member",
        "provider",
        "sandbox",
        "workload_template",
        "service_endpoint",
        "attachment",
        "policy_revision",
        "setting",
        "claim",
        "quota_slot",
    ] {
        let rows =
            format!("select md5(coalesce(string_agg(t::text, '|' order by t::text), '')) from roadstead.{table} t");
        state.push(world.sql.value(&rows).await);
    }
    state.push(world.sql.value("select last_value from pg_sequences where sequencename = 'outbox_id_seq'").await);
    state
}
