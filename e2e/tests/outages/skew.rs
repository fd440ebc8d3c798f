//! Peers of other versions: of the protocol, and of the client that it was taken from.
//!
//! The wire of `openshell.v1` 0.1.5 has no number of a revision in any message: a revision is named by the package of the
//! service. What a peer can do or cannot, it says by flags, and what one of a later version adds are fields and kinds of
//! message that are not known here.

use std::{process::Command, time::Duration};

use bytes::Bytes;
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage};
use roadstead_e2e::{
    api::{client, request_id, scope},
    raw::{Answer, Raw, bearer},
};
use roadstead_proto::{
    api::{
        FILE_DESCRIPTOR_SET,
        v1::{
            CreateSandboxRequest, GatewayMessage, SandboxSpec, SupervisorHello, SupervisorMessage,
            gateway_message::Payload as Said, supervisor_message::Payload,
        },
    },
    method::Method,
};
use roadstead_testkit::{
    Stack, eventually,
    stack::{Plan, Role},
};
use serde_json::Value;
use tonic::Code;

/// What the public client puts on the wire, written down by `e2e/python/record_requests.py`.
const REQUESTS: &str = include_str!("skew/requests.tsv");
/// What it was answered, with a word in the place of what is another each time.
const ANSWERS: &str = include_str!("skew/answers.tsv");

const REVISIONS: [&str; 2] = ["configRevision", "providerEnvRevision"];
const SOON: Duration = Duration::from_secs(10);
/// A field of a number that no message has.
const LATER_FIELD: u32 = 1000;

/// A field that is not known here, as it is on the wire.
fn later_field(content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encoding::bytes::encode(LATER_FIELD, &content.to_vec(), &mut bytes);
    bytes
}

/// Two of those that a client meets.
fn plan() -> Plan {
    Plan::single().replicas(Role::Edge, 2).replicas(Role::Watch, 2)
}

struct Supervised {
    stack: Stack,
    sandbox_id: String,
    token: Vec<String>,
}

impl Supervised {
    async fn start() -> Self {
        let stack = Stack::start(plan()).await;
        let request = CreateSandboxRequest {
            workspace_scope: scope("default"),
            name: "box".to_owned(),
            spec: Some(SandboxSpec::default()),
            request_id: request_id(),
            ..Default::default()
        };
        let created = client(&stack.edge(1)).create_sandbox(request).await.unwrap().into_inner();
        let token = std::fs::read_to_string(stack.token("default", "box").await).unwrap();
        let sandbox_id = created.sandbox.unwrap().metadata.unwrap().id;
        Self { stack, sandbox_id, token: bearer(token.trim()) }
    }

    fn hello(&self, epoch: u64) -> SupervisorHello {
        SupervisorHello {
            sandbox_id: self.sandbox_id.clone(),
            instance_id: "f3f3f3f3-0000-4000-8000-000000000001".to_owned(),
            connection_epoch: epoch,
            ..Default::default()
        }
    }

    async fn bridge(&self) -> Raw {
        Raw::open(&self.stack.bridge(1)).await
    }

    async fn counted(&self) -> f64 {
        let series = "roadstead_session_not_understood_total{role=\"supervisor-bridge\"}";
        self.stack.node(Role::SupervisorBridge, 1).metric(series).await
    }
}

fn message(payload: Payload) -> Vec<u8> {
    SupervisorMessage { payload: Some(payload) }.encode_to_vec()
}

fn said(message: Bytes) -> Said {
    GatewayMessage::decode(message).unwrap().payload.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_of_another_revision_is_told_both_and_one_of_a_later_version_is_served_as_far_as_it_is_known() {
    let world = Supervised::start().await;
    let [one, two] = [Raw::open(&world.stack.edge(1)).await, Raw::open(&world.stack.edge(2)).await];
    for door in [one, two, world.bridge().await] {
        // One earlier, one later, and none.
        for (package, named) in
            [("openshell.v0.", "openshell.v0"), ("openshell.v2.", "openshell.v2"), ("", "a service without one")]
        {
            let hello = message(Payload::Hello(world.hello(1)));
            let path = format!("/{package}OpenShell/ConnectSupervisor");
            let Answer { code, message, .. } = door.call_path(&path, &world.token, hello).await;
            assert_eq!(code, Code::Unimplemented, "{path}");
            assert!(message.contains("openshell.v1 of 0.1.5") && message.ends_with(named), "{message}");
        }
        let later = door.call_path("/openshell.v1.OpenShell/ConnectAgain", &world.token, Vec::new()).await;
        assert_eq!(later.code, Code::Unimplemented);
        assert!(later.message.contains("0.1.5") && later.message.ends_with("ConnectAgain"), "{}", later.message);
    }

    // A first message that is of no known kind opens nothing.
    let refused = world.bridge().await.call(Method::ConnectSupervisor, &world.token, later_field(b"greeting")).await;
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (Code::InvalidArgument, "the first message must be the hello")
    );

    // A hello without any flag has a session without pushes.
    let plain = message(Payload::Hello(world.hello(1)));
    let mut open = world.bridge().await.stream(Method::ConnectSupervisor, &world.token, plain).await.unwrap();
    let Said::SessionAccepted(accepted) = said(open.responses.message().await.unwrap().unwrap()) else { panic!() };
    assert!(!accepted.config_push_enabled && accepted.bootstrap.is_none());
    drop(open);

    // One that says more than is known has what is known.
    let hello = SupervisorHello { supports_config_push: true, ..world.hello(2) };
    let mut hello = hello.encode_to_vec();
    hello.extend(later_field(b"a revision"));
    let mut first = Vec::new();
    prost::encoding::bytes::encode(1, &hello, &mut first);
    let mut open = world.bridge().await.stream(Method::ConnectSupervisor, &world.token, first).await.unwrap();
    let Said::SessionAccepted(accepted) = said(open.responses.message().await.unwrap().unwrap()) else { panic!() };
    assert!(accepted.config_push_enabled);

    // A kind of message that is not known is left out, and counted.
    let before = world.counted().await;
    open.requests.send(later_field(b"word").into()).await.unwrap();
    eventually(SOON, "it is counted", async || world.counted().await > before).await;
    let repeated = message(Payload::Hello(world.hello(3)));
    open.requests.send(repeated.into()).await.unwrap();
    let ended = async {
        loop {
            if let Err(status) = open.responses.message().await {
                return status;
            }
        }
    };
    let ended = tokio::time::timeout(SOON, ended).await.expect("the session was open until then");
    assert_eq!(ended.code(), Code::InvalidArgument, "{ended:?}");
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// A line for an answer: its code, and what it says, with a word in the place of what is another each time.
fn line(pool: &DescriptorPool, method: Method, answer: &Answer) -> String {
    let code = format!("{:?}", answer.code);
    let Some(first) = &answer.first else { return format!("{method}\t{code}\t{}", masked(&answer.message)) };
    let service = pool.get_service_by_name("openshell.v1.OpenShell").unwrap();
    let output = service.methods().find(|found| found.name() == method.name()).unwrap().output();
    let decoded = DynamicMessage::decode(output, first.clone()).unwrap();
    let mut value = serde_json::to_value(&decoded).unwrap();
    mask(&mut value);
    format!("{method}\t{code}\t{value}")
}

fn mask(value: &mut Value) {
    match value {
        Value::String(text) => *text = masked(text),
        Value::Array(values) => values.iter_mut().for_each(mask),
        Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| match value {
            // They are hashes of ids among others.
            Value::String(text) if REVISIONS.contains(&name.as_str()) => *text = "<revision>".to_owned(),
            value => mask(value),
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn masked(text: &str) -> String {
    // The id of a change is a word and an id.
    if let Some((word, id)) = text.split_once(':').filter(|(_, id)| uuid::Uuid::try_parse(id).is_ok()) {
        return format!("{word}:{}", masked(id));
    }
    let is_time = text.ends_with('Z') && text.parse::<prost_types::Timestamp>().is_ok();
    match text {
        _ if uuid::Uuid::try_parse(text).is_ok() => "<id>".to_owned(),
        _ if is_time => "<time>".to_owned(),
        env!("CARGO_PKG_VERSION") => "<version>".to_owned(),
        _ => text.to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_requests_of_the_public_client_are_answered_as_ever() {
    let stack = Stack::start(plan()).await;
    let edges = [Raw::open(&stack.edge(1)).await, Raw::open(&stack.edge(2)).await];
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
    let mut answers = String::new();
    for (request, edge) in REQUESTS.lines().zip(edges.iter().cycle()) {
        let (name, bytes) = request.split_once('\t').unwrap();
        let method = Method::from_name(name).unwrap();
        let answer = edge.call(method, &[], hex(bytes)).await;
        answers += &(line(&pool, method, &answer) + "\n");
    }
    if std::env::var_os("ROADSTEAD_RECORD").is_some() {
        return std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/outages/skew/answers.tsv"), answers)
            .unwrap();
    }
    for (now, ever) in answers.lines().zip(ANSWERS.lines()) {
        assert_eq!(now, ever, "all answers are now:\n{answers}");
    }
    assert!(answers == ANSWERS, "there are more or fewer answers; all of them are now:\n{answers}");
}

#[test]
fn the_recording_is_what_the_installed_client_says() {
    let Some(python) = std::env::var_os("ROADSTEAD_PYTHON") else {
        eprintln!("skipped: ROADSTEAD_PYTHON names no Python that has openshell installed");
        return;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/python/record_requests.py");
    let output = Command::new(python).arg(script).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8(output.stdout).unwrap() == REQUESTS, "requests.tsv differs; run {script} again");
}
