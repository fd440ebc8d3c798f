//! E2: acting under another sandbox's id.

use std::collections::BTreeMap;
use std::time::Duration;

use prost::Message as _;
use roadstead_proto::api::datamodel::WorkspaceSelector;
use roadstead_proto::api::sandbox::{GetSandboxConfigRequest, SandboxPolicy};
use roadstead_proto::api::v1::gateway_message::Payload as FromBridge;
use roadstead_proto::api::v1::{
    FinalizeMainProcessExitRequest, GatewayMessage, GetSandboxProviderEnvironmentRequest, ReportEndpointStatusRequest,
    ReportMainProcessExitRequest, ReportPolicyStatusRequest, ReportProviderReadinessRequest,
    ReportSandboxConfigurationRequest, UpdateConfigRequest,
};
use roadstead_proto::method::Method;
use tonic::Code;
use uuid::Uuid;

use crate::requests::{Target, hello};
use crate::world::{World, selector};
use roadstead_e2e::raw::{Answer, bearer};

const SOON: Duration = Duration::from_secs(10);

/// One request each of every method that a supervisor calls and that names a sandbox, with that name or id.
fn naming(target: &Target, scope: Option<WorkspaceSelector>) -> Vec<(Method, Vec<u8>)> {
    let (id, name) = (target.sandbox_id.clone(), target.sandbox.clone());
    let config = GetSandboxConfigRequest { name: name.clone(), workspace_scope: scope.clone() };
    let policy = Some(SandboxPolicy { version: 1, ..Default::default() });
    let update = UpdateConfigRequest { sandbox: name, workspace_scope: scope, policy, ..Default::default() };
    let environment = GetSandboxProviderEnvironmentRequest { sandbox_id: id.clone(), ..Default::default() };
    let status = ReportPolicyStatusRequest { sandbox_id: id.clone(), version: 1, status: 2, ..Default::default() };
    let configuration = ReportSandboxConfigurationRequest { sandbox_id: id.clone(), ..Default::default() };
    let exit = ReportMainProcessExitRequest { sandbox_id: id.clone(), instance_id: "i".to_owned(), exit_code: 1 };
    let last = FinalizeMainProcessExitRequest { sandbox_id: id.clone(), instance_id: "i".to_owned() };
    let readiness = ReportProviderReadinessRequest { sandbox_id: id.clone(), ..Default::default() };
    let endpoints = ReportEndpointStatusRequest { sandbox_id: id.clone(), ..Default::default() };
    vec![
        (Method::ReportMainProcessExit, exit.encode_to_vec()),
        (Method::FinalizeMainProcessExit, last.encode_to_vec()),
        (Method::GetSandboxConfig, config.encode_to_vec()),
        (Method::UpdateConfig, update.encode_to_vec()),
        (Method::GetSandboxProviderEnvironment, environment.encode_to_vec()),
        (Method::ReportPolicyStatus, status.encode_to_vec()),
        (Method::ReportSandboxConfiguration, configuration.encode_to_vec()),
        (Method::ReportProviderReadiness, readiness.encode_to_vec()),
        (Method::ReportEndpointStatus, endpoints.encode_to_vec()),
        (Method::ConnectSupervisor, hello(&id, 1)),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_names_another_is_refused_in_one_way_whether_that_one_exists_or_not() {
    let world = World::start().await;
    let own = &world.sandbox;
    let before = world.state().await;
    let nowhere = Target { workspace: "nowhere".to_owned(), ..world.missing() };
    let mixed = Target { workspace: world.namesake.target.workspace.clone(), ..own.target.clone() };
    let mut answers: BTreeMap<Method, Vec<(&str, Answer)>> = BTreeMap::new();
    for (who, target) in [
        ("one in its workspace", &world.neighbour.target),
        ("one of its name in another workspace", &world.namesake.target),
        ("a missing one in its workspace", &world.missing()),
        ("a missing one in a missing workspace", &nowhere),
    ] {
        for (method, message) in naming(target, selector(&target.workspace)) {
            let answer = world.bridge.call(method, &bearer(&own.token), message).await;
            answers.entry(method).or_default().push((who, answer));
        }
    }
    // Its own name, but another workspace's; a name without a workspace.
    for (method, message) in naming(&mixed, selector(&mixed.workspace)) {
        if matches!(method, Method::GetSandboxConfig | Method::UpdateConfig) {
            let answer = world.bridge.call(method, &bearer(&own.token), message).await;
            answers.entry(method).or_default().push(("its own name in another workspace", answer));
        }
    }
    for (who, target) in
        [("a neighbour without a scope", &world.neighbour.target), ("a missing one without a scope", &world.missing())]
    {
        let unscoped = naming(target, None).into_iter().find(|(method, _)| *method == Method::GetSandboxConfig);
        let (method, message) = unscoped.unwrap();
        let answer = world.bridge.call(method, &bearer(&own.token), message).await;
        answers.entry(method).or_default().push((who, answer));
    }
    let mut faults = Vec::new();
    for (method, answers) in &answers {
        let uniform = &answers[0].1;
        for (who, answer) in answers {
            if answer.code != Code::PermissionDenied || answer != uniform {
                faults.push(format!("{method}, {who}: {:?}: {}", answer.code, answer.message));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let texts = answers.values().map(|answers| &answers[0].1.message).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(texts.len(), 1, "one refusal for all methods, not {texts:?}");
    assert_eq!(world.state().await, before, "something came of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_names_no_sandbox_is_not_the_callers_own() {
    let world = World::start().await;
    let before = world.state().await;
    let target = Target { sandbox: String::new(), sandbox_id: String::new(), ..world.sandbox.target.clone() };
    for (method, message) in naming(&target, selector(&target.workspace)) {
        let answer = world.bridge.call(method, &bearer(&world.sandbox.token), message).await;
        let refused = matches!(answer.code, Code::PermissionDenied | Code::InvalidArgument);
        assert!(refused, "{method}: {:?}: {}", answer.code, answer.message);
    }
    assert_eq!(world.state().await, before, "something came of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_frame_with_another_sandboxs_id_ends_the_stream() {
    let world = World::start().await;
    let (own, missing) = (&world.sandbox, Uuid::new_v4().to_string());
    let mut refusals = Vec::new();
    for (epoch, id) in
        [&world.neighbour.target.sandbox_id, &world.namesake.target.sandbox_id, &missing].into_iter().enumerate()
    {
        let hello_of_its_own = hello(&own.target.sandbox_id, epoch as u64 + 1);
        let open = world.bridge.stream(Method::ConnectSupervisor, &bearer(&own.token), hello_of_its_own).await;
        let mut open = open.unwrap();
        let first = tokio::time::timeout(SOON, open.responses.message()).await.unwrap().unwrap().unwrap();
        let accepted = GatewayMessage::decode(first).unwrap().payload;
        assert!(matches!(accepted, Some(FromBridge::SessionAccepted(_))), "{accepted:?}");

        open.requests.send(hello(id, 9).into()).await.unwrap();
        let end = tokio::time::timeout(SOON, async {
            loop {
                match open.responses.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => break None,
                    Err(status) => break Some(Answer::refused(&status)),
                }
            }
        });
        refusals.push(end.await.expect("the stream ends").expect("it ends with a refusal"));
    }
    assert_eq!(refusals[0].code, Code::PermissionDenied, "{refusals:?}");
    assert!(refusals.iter().all(|refusal| *refusal == refusals[0]), "{refusals:?}");

    let mut session = world.stack.session().await;
    let others = format!(
        "select count(*) from roadstead.sandbox where session_id is not null and id in ('{}', '{}')",
        world.neighbour.target.sandbox_id, world.namesake.target.sandbox_id
    );
    assert_eq!(session.value(&others).await, "0", "another sandbox has a session");
}
