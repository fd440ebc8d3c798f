//! What operators ask for.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use prost::Message as _;
use roadstead_bus::{Bus, ConnectSettings};
use roadstead_proto::internal::{
    Answer, ClockReading, Command, MintSandboxTokenRequest, MintSandboxTokenResponse, OperatorRequest, Sealed,
    answer::Outcome,
};
use roadstead_proto::role::Role;
use roadstead_proto::subject::{self, AdminCall};
use roadstead_service_kit::status;
use roadstead_testkit::eventually;
use tonic::Code;
use uuid::Uuid;

use crate::world::{LONG, World};

async fn mint(world: &World, workspace: &str, sandbox: &str) -> Result<MintSandboxTokenResponse, tonic::Status> {
    let keys = world.keys(Role::Operator);
    let settings = ConnectSettings {
        url: world.broker.url(),
        name: "operator".into(),
        role: Role::Operator,
        nkey_seed: Some(keys.broker_seed().clone()),
        ca: None,
    };
    let bus = Bus::connect(settings).await.unwrap();
    bus.connected().await;
    let (seal, id) = (keys.door_seal().unwrap(), Uuid::now_v7());
    let request = MintSandboxTokenRequest { workspace: workspace.into(), sandbox: sandbox.into() };
    let command = Command {
        command_id: id.to_string(),
        method: AdminCall::MintSandboxToken.name().into(),
        request: request.encode_to_vec().into(),
        ..Default::default()
    };
    let command = Some(seal.seal_command(id, &command.encode_to_vec()));
    let request: Bytes = OperatorRequest { id: id.to_string(), command }.encode_to_vec().into();
    let reply = eventually(LONG, "an admission answers operators", || async {
        bus.request(subject::admin(AdminCall::MintSandboxToken), request.clone(), Duration::from_secs(5)).await
    })
    .await;
    let answer = seal.open_answer(id, &Sealed::decode(reply).unwrap()).unwrap();
    match Answer::decode(answer).unwrap().outcome.unwrap() {
        Outcome::Response(body) => Ok(MintSandboxTokenResponse::decode(body).unwrap()),
        Outcome::Status(bytes) => Err(status::from_bytes(&bytes)),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_gets_a_sandboxs_token() {
    let world = World::new().await;
    world.workspace("w").await;
    let id = world.sandbox("w", "box").await.metadata.unwrap().id;
    let minted = mint(&world, "w", "box").await.unwrap();
    assert_eq!(minted.sandbox_id, id);
    let verifier = world.keys(Role::SupervisorBridge).token_verifier().unwrap();
    let identity = verifier.verify(&minted.token, SystemTime::now()).unwrap();
    assert_eq!((identity.sandbox_id.to_string(), identity.generation), (id, 1));
    for (workspace, sandbox) in [("w", "none"), ("none", "box")] {
        assert_eq!(mint(&world, workspace, sandbox).await.unwrap_err().code(), Code::NotFound);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_door_can_compare_its_clock() {
    let world = World::new().await;
    let reading = eventually(LONG, "the clock is told", || async {
        let reply = world.edge.bus.request(subject::CLOCK, Bytes::new(), Duration::from_secs(2)).await.ok()?;
        ClockReading::decode(reply).ok().filter(|reading| reading.now_micros > 0)
    })
    .await;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros();
    assert!(now.abs_diff(reading.now_micros as u128) < 30_000_000);
    world.stop().await;
}
