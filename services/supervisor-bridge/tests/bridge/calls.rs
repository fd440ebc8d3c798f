//! Who may call what.

use bytes::Bytes;
use roadstead_proto::api::sandbox::GetSandboxConfigRequest;
use roadstead_proto::api::v1::gateway_message::Payload as FromBridge;
use roadstead_proto::api::v1::supervisor_message::Payload as ToBridge;
use roadstead_proto::api::v1::{
    GetDraftPolicyRequest, GetSandboxProviderEnvironmentRequest, GetSandboxRequest, HealthRequest,
    ReportPolicyStatusRequest, SupervisorHeartbeat, SupervisorHello, SupervisorMessage,
};
use roadstead_proto::internal::RegisterSession;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};
use uuid::Uuid;

use crate::desk::refusal as refused;
use crate::shelf::Content;
use crate::world::{BridgeProcess, World, with_token};

pub(crate) fn hello(sandbox_id: Uuid) -> ToBridge {
    ToBridge::Hello(SupervisorHello {
        sandbox_id: sandbox_id.to_string(),
        instance_id: Uuid::new_v4().to_string(),
        connection_epoch: 1,
        supports_config_push: true,
        ..Default::default()
    })
}

/// A stream whose first messages are these.
pub(crate) async fn connect(
    world: &World,
    bridge: &BridgeProcess,
    token_of: Uuid,
    first: Vec<ToBridge>,
) -> Result<(mpsc::Sender<SupervisorMessage>, Streaming<roadstead_proto::api::v1::GatewayMessage>), Status> {
    let (sender, receiver) = mpsc::channel(8);
    for payload in first {
        sender.send(SupervisorMessage { payload: Some(payload) }).await.unwrap();
    }
    let request = with_token(ReceiverStream::new(receiver), &world.fresh_token(token_of));
    let inbound = bridge.client().await.connect_supervisor(request).await?.into_inner();
    Ok((sender, inbound))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_message_must_be_the_hello_of_ones_own_sandbox() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let own = Uuid::new_v4();
    let refusal = |first| async { connect(&world, &bridge, own, first).await.map(|_| ()).unwrap_err() };

    let beat = ToBridge::Heartbeat(SupervisorHeartbeat {});
    assert_eq!(refusal(vec![beat]).await.code(), Code::InvalidArgument);
    let nobody = ToBridge::Hello(SupervisorHello::default());
    assert_eq!(refusal(vec![nobody]).await.code(), Code::InvalidArgument);
    let foreign = refusal(vec![hello(Uuid::new_v4())]).await;
    assert_eq!(foreign.code(), Code::PermissionDenied);
    assert!(world.desk.told("RegisterSession").is_empty(), "nothing of it reached admission");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_frame_for_another_sandbox_ends_the_stream() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    for (second, expected) in [(true, Code::InvalidArgument), (false, Code::PermissionDenied)] {
        let own = Uuid::new_v4();
        world.shelf.put(own, &Content::version(1)).await;
        let (sender, mut inbound) = connect(&world, &bridge, own, vec![hello(own)]).await.unwrap();
        let first = inbound.message().await.unwrap().unwrap();
        assert!(matches!(first.payload, Some(FromBridge::SessionAccepted(_))));
        let later = if second { hello(own) } else { hello(Uuid::new_v4()) };
        sender.send(SupervisorMessage { payload: Some(later) }).await.unwrap();
        let end = loop {
            match inbound.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("ended in order"),
                Err(status) => break status,
            }
        };
        assert_eq!(end.code(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_push_gets_heartbeats_and_no_updates() {
    let world = World::new().await;
    let bridge = world.bridge(&["--heartbeat-seconds=1"]).await;
    let own = Uuid::new_v4();
    world.shelf.put(own, &Content::version(1)).await;
    let ToBridge::Hello(greeting) = hello(own) else { panic!() };
    let greeting = SupervisorHello { supports_config_push: false, ..greeting };
    let (_sender, mut inbound) = connect(&world, &bridge, own, vec![ToBridge::Hello(greeting)]).await.unwrap();
    let Some(FromBridge::SessionAccepted(accepted)) = inbound.message().await.unwrap().unwrap().payload else {
        panic!()
    };
    assert!(!accepted.config_push_enabled && accepted.bootstrap.is_none());
    assert_eq!(accepted.heartbeat_interval.unwrap().seconds, 1);
    world.shelf.put(own, &Content::version(2)).await;
    let next = inbound.message().await.unwrap().unwrap();
    assert!(matches!(next.payload, Some(FromBridge::Heartbeat(_))));
    // This side sends none, so the session ends.
    let end = loop {
        match inbound.message().await {
            Ok(Some(message)) => assert!(matches!(message.payload, Some(FromBridge::Heartbeat(_)))),
            Ok(None) => panic!("ended in order"),
            Err(status) => break status,
        }
    };
    assert_eq!(end.code(), Code::Aborted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_that_does_not_push_says_so_to_supervisors_and_to_admission() {
    let world = World::new().await;
    let bridge = world.bridge(&["--config-delivery-mode=poll"]).await;
    let own = Uuid::new_v4();
    world.shelf.put(own, &Content::version(1)).await;
    let (_sender, mut inbound) = connect(&world, &bridge, own, vec![hello(own)]).await.unwrap();
    let Some(FromBridge::SessionAccepted(accepted)) = inbound.message().await.unwrap().unwrap().payload else {
        panic!()
    };
    assert!(!accepted.config_push_enabled && accepted.bootstrap.is_none());
    assert!(!world.desk.wait::<RegisterSession>("RegisterSession", 0).await.config_push);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_admission_refuses_is_what_the_supervisor_is_told() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let own = Uuid::new_v4();
    for code in [Code::FailedPrecondition, Code::Aborted, Code::Unauthenticated, Code::NotFound] {
        world.desk.answer_next("RegisterSession", refused(code, "because"));
        let refusal = connect(&world, &bridge, own, vec![hello(own)]).await.map(|_| ()).unwrap_err();
        assert_eq!((refusal.code(), refusal.message()), (code, "because"));
    }
    assert!(world.desk.told("EndSession").is_empty(), "there was no session to end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_calls_its_own_methods_about_itself_only() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let (own, other) = (Uuid::new_v4(), Uuid::new_v4());
    let token = world.fresh_token(own);
    let mut client = bridge.client().await;

    let asked = |id: Uuid| GetSandboxProviderEnvironmentRequest { sandbox_id: id.to_string(), ..Default::default() };
    let answer = client.get_sandbox_provider_environment(with_token(asked(own), &token)).await.unwrap();
    assert_eq!(answer.into_inner().environment["KEY"], "hush");
    let denied = client.get_sandbox_provider_environment(with_token(asked(other), &token)).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);

    let status = |id: Uuid| ReportPolicyStatusRequest { sandbox_id: id.to_string(), ..Default::default() };
    world.desk.answer_next("ReportPolicyStatus", Ok(Bytes::new()));
    client.report_policy_status(with_token(status(own), &token)).await.unwrap();
    let denied = client.report_policy_status(with_token(status(other), &token)).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    let told = world.desk.told("ReportPolicyStatus");
    assert!(told.len() == 1 && told[0].token, "admission verifies the token of a unary method");

    let unserved = client.get_draft_policy(with_token(GetDraftPolicyRequest::default(), &token)).await.unwrap_err();
    assert_eq!(unserved.code(), Code::Unimplemented);
    assert_eq!(unserved.message(), "GetDraftPolicy is not served yet");
}

#[tokio::test(flavor = "multi_thread")]
async fn users_methods_are_refused_and_so_is_whoever_has_no_good_token() {
    let world = World::new().await;
    let bridge = world.bridge(&[]).await;
    let own = Uuid::new_v4();
    let mut client = bridge.client().await;
    let denied = client.get_sandbox(with_token(GetSandboxRequest::default(), &world.fresh_token(own))).await;
    assert_eq!(denied.unwrap_err().code(), Code::PermissionDenied);

    let hour = std::time::Duration::from_secs(3600);
    for token in ["no-token".to_owned().into(), world.token(own, 2 * hour, hour)] {
        let refused = client.get_sandbox_config(with_token(GetSandboxConfigRequest::default(), &token)).await;
        assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
    }
    let refused = client.get_sandbox_config(GetSandboxConfigRequest::default()).await;
    assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
    client.health(HealthRequest {}).await.unwrap();
}
