//! An admission dies between a refusal's commit, its answer and its ack, and then the state changes so that the same
//! mutation would succeed: what was refused stays refused.

use std::time::Duration;

use roadstead_e2e::{
    api::{client, request_id, scope},
    effect::Told,
};
use roadstead_proto::api::v1::{CreateSandboxRequest, DeleteSandboxRequest, SandboxSpec};
use roadstead_testkit::{
    Stack, eventually, generate,
    proxy::Direction,
    sql::Session,
    stack::{Node, Plan, Role},
};
use tokio::{sync::Mutex, task::JoinHandle};
use tonic::{Code, Status};

const SOON: Duration = Duration::from_secs(10);
/// The broker gives the command to somebody else after 5 s, and the edge sends it again after 6 s.
const REDELIVERED: Duration = Duration::from_secs(15);

/// Where an admission stops dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// The refusal is committed, nobody knows of it.
    BeforeTheAnswer,
    /// The client knows, the broker does not.
    BeforeTheAck,
}

impl Moment {
    /// The subject of the first message that is not let through.
    const fn subject(self) -> &'static str {
        match self {
            Self::BeforeTheAnswer => "_INBOX_edge.*.answer",
            Self::BeforeTheAck => "$JS.ACK.COMMANDS",
        }
    }
}

fn creation(name: &str, request_id: String) -> CreateSandboxRequest {
    CreateSandboxRequest {
        workspace_scope: scope("default"),
        name: name.to_owned(),
        spec: Some(SandboxSpec::default()),
        request_id,
        ..Default::default()
    }
}

fn create(edge: &str, name: &str, request_id: String) -> JoinHandle<Result<(), Status>> {
    let (mut api, request) = (client(edge), creation(name, request_id));
    tokio::spawn(async move { api.create_sandbox(request).await.map(drop) })
}

async fn delete(edge: &str, name: &str) {
    let request = DeleteSandboxRequest {
        workspace_scope: scope("default"),
        name: name.to_owned(),
        request_id: request_id(),
        ..Default::default()
    };
    client(edge).delete_sandbox(request).await.unwrap();
}

/// Stops every admission at the moment and returns the number of the one that came to it.
async fn first_at(admissions: [&Node; 2]) -> usize {
    tokio::select! {
        () = admissions[0].nats.halted(1) => 1,
        () = admissions[1].nats.halted(1) => 2,
    }
}

async fn sandboxes(session: &Mutex<Session>, name: &str) -> String {
    session.lock().await.value(&format!("select count(*) from roadstead.sandbox where name = '{name}'")).await
}

async fn a_refusal_stays(moment: Moment, request_id: String) {
    let mut stack = Stack::start(Plan::pairs()).await;
    let name = generate::unique("twice");
    create(&stack.edge(1), &name, String::new()).await.unwrap().unwrap();
    let session = Mutex::new(stack.session().await);
    // Its ack is not the one to be stopped.
    eventually(SOON, "the first creation is acked", async || settled(&stack, "done").await).await;

    let admissions = [1, 2].map(|number| stack.node(Role::Admission, number));
    for admission in admissions {
        admission.nats.halt_at(Direction::ToServer, moment.subject());
    }
    let call = create(&stack.edge(1), &name, request_id);
    let halted = tokio::time::timeout(SOON, first_at(admissions)).await.expect("an admission came to the moment");
    let refusals = "select count(*) from roadstead.command where outcome = 3";
    assert_eq!(session.lock().await.value(refusals).await, "1", "the refusal is not committed");
    if moment == Moment::BeforeTheAck {
        eventually(SOON, "the client has been told", async || call.is_finished()).await;
    }
    stack.node(Role::Admission, 3 - halted).nats.heal();
    stack.node_mut(Role::Admission, halted).kill().await;

    delete(&stack.edge(2), &name).await;
    assert_eq!(sandboxes(&session, &name).await, "0");

    let told = tokio::time::timeout(REDELIVERED, call).await.expect("the client is told in time").unwrap();
    let status = told.unwrap_err();
    assert!(
        status.code() == Code::AlreadyExists || matches!(Told::by(&status), Told::Unknown(_)),
        "it was refused, and then told {status:?}"
    );
    let admission = stack.node_mut(Role::Admission, halted);
    admission.nats.heal();
    admission.resume();
    admission.ready().await;
    // The counters of the one that was killed are gone with it: whoever counts now has had the command after it.
    eventually(REDELIVERED, "the command is delivered again and settled", async || settled(&stack, "refused").await)
        .await;
    assert_eq!(sandboxes(&session, &name).await, "0", "what was refused has an effect");
    assert_eq!(session.lock().await.value(refusals).await, "1");
}

/// Whether an admission has settled a command so; it counts after the ack.
async fn settled(stack: &Stack, outcome: &str) -> bool {
    let wanted = format!("outcome=\"{outcome}\"");
    for number in [1, 2] {
        let metrics = stack.node(Role::Admission, number).metrics().await;
        let mut counters = metrics.lines().filter(|line| line.starts_with("roadstead_commands_total"));
        if counters.any(|line| line.contains(&wanted) && line.contains("method=\"CreateSandbox\"")) {
            return true;
        }
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_that_was_committed_and_not_told_has_no_effect_when_it_could_be_carried_out() {
    a_refusal_stays(Moment::BeforeTheAnswer, String::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_with_a_request_id_that_was_committed_and_not_told_has_no_effect_either() {
    a_refusal_stays(Moment::BeforeTheAnswer, request_id()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_that_was_told_and_not_acked_has_no_effect_when_it_could_be_carried_out() {
    a_refusal_stays(Moment::BeforeTheAck, request_id()).await;
}
