//! What operators ask for.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use prost::Message;
use roadstead_bus::{Bus, ConnectSettings};
use roadstead_proto::api::v1::{self, RotateProviderCredentialRequest};
use roadstead_proto::internal::get_command_response::State;
use roadstead_proto::internal::settle_command_request::Outcome as Found;
use roadstead_proto::internal::{
    Answer, ClockReading, Command, GetCommandRequest, GetCommandResponse, ListUnresolvedRequest,
    ListUnresolvedResponse, MintSandboxTokenRequest, MintSandboxTokenResponse, OperatorRequest,
    ReactivateWorkspaceRequest, ReactivateWorkspaceResponse, Sealed, SettleCommandRequest, SettleCommandResponse,
    answer::Outcome,
};
use roadstead_proto::method::Method;
use roadstead_proto::role::Role;
use roadstead_proto::subject::{self, AdminCall};
use roadstead_service_kit::status;
use roadstead_testkit::eventually;
use tonic::Code;
use uuid::Uuid;

use crate::outside::{Fate, Outside};
use crate::world::{LONG, World, command, create_sandbox, fresh_id, principal, reason, root, scope};

/// Asks as an operator does.
async fn ask<R: Message + Default>(world: &World, call: AdminCall, request: &impl Message) -> Result<R, tonic::Status> {
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
    let command = Command {
        command_id: id.to_string(),
        method: call.name().into(),
        request: request.encode_to_vec().into(),
        ..Default::default()
    };
    let command = Some(seal.seal_command(id, &command.encode_to_vec()));
    let request: Bytes = OperatorRequest { id: id.to_string(), command }.encode_to_vec().into();
    let reply = eventually(LONG, "an admission answers operators", || async {
        bus.request(subject::admin(call), request.clone(), Duration::from_secs(5)).await
    })
    .await;
    let answer = seal.open_answer(id, &Sealed::decode(reply).unwrap()).unwrap();
    match Answer::decode(answer).unwrap().outcome.unwrap() {
        Outcome::Response(body) => Ok(R::decode(body).unwrap()),
        Outcome::Status(bytes) => Err(status::from_bytes(&bytes)),
    }
}

async fn mint(world: &World, workspace: &str, sandbox: &str) -> Result<MintSandboxTokenResponse, tonic::Status> {
    let request = MintSandboxTokenRequest { workspace: workspace.into(), sandbox: sandbox.into() };
    ask(world, AdminCall::MintSandboxToken, &request).await
}

async fn list(world: &World, page_size: u32, page_token: &str) -> ListUnresolvedResponse {
    let request = ListUnresolvedRequest { page_size, page_token: page_token.into() };
    ask(world, AdminCall::ListUnresolved, &request).await.unwrap()
}

async fn show(world: &World, command_id: &str) -> Result<GetCommandResponse, tonic::Status> {
    ask(world, AdminCall::GetCommand, &GetCommandRequest { command_id: command_id.into() }).await
}

async fn settle(world: &World, command_id: &str, found: Found) -> Result<SettleCommandResponse, tonic::Status> {
    let request = SettleCommandRequest {
        command_id: command_id.into(),
        outcome: found.into(),
        operator: "ann".into(),
        reason: "asked the other side".into(),
    };
    ask(world, AdminCall::SettleCommand, &request).await
}

/// Rotates a credential with a fate that nobody learns, and returns when its command stands as started.
async fn strand(world: &World, outside: &Outside, provider: &str, request_id: &str) -> (Strand, String) {
    world.provider("w", provider).await;
    let request = RotateProviderCredentialRequest {
        provider: provider.into(),
        credential_key: Fate::FailsSomehow.key(),
        workspace_scope: scope("w"),
        request_id: request_id.into(),
    };
    let method = Method::RotateProviderCredential;
    let sent = command(method.name(), principal(&root()), &request, Duration::from_secs(2));
    let id = sent.command_id.clone();
    let unknown = world.edge.call_within(&subject::command(method), sent, Duration::from_secs(2)).await;
    assert_eq!(unknown.unwrap_err().code(), Code::Unknown);
    assert_eq!(outside.effects(provider), 1);
    (Strand(request), id)
}

struct Strand(RotateProviderCredentialRequest);

impl Strand {
    /// Makes the call once more. `UNKNOWN` says that it was executed, for nobody learns its fate.
    async fn again(&self, world: &World) -> tonic::Status {
        let (method, patience) = (Method::RotateProviderCredential, Duration::from_secs(4));
        let sent = command(method.name(), principal(&root()), &self.0, patience);
        world.edge.call_within(&subject::command(method), sent, patience).await.unwrap_err()
    }
}

const NOBODY_IS_AT_WORK: &str = "update roadstead.effect set until = clock_timestamp() - interval '1 second'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_no_outcome_is_listed_page_by_page_and_shown() {
    let outside = Outside::new();
    let world = World::serving(outside.served(), 1, &[]).await;
    world.workspace("w").await;
    let request_id = fresh_id();
    let (_, with) = strand(&world, &outside, "one", &request_id).await;
    let (_, without) = strand(&world, &outside, "two", "").await;
    let first = list(&world, 1, "").await;
    let second = list(&world, 1, &first.next_page_token).await;
    let last = list(&world, 1, &second.next_page_token).await;
    assert!(last.commands.is_empty() && last.next_page_token.is_empty());
    let [one] = first.commands.as_slice() else { panic!("{first:?}") };
    assert_eq!((&one.command_id, &one.method, &one.scope), (&with, &"RotateProviderCredential".into(), &"w".into()));
    assert_eq!((one.request_id.as_str(), one.caller.len()), (request_id.as_str(), 64));
    let [two] = second.commands.as_slice() else { panic!("{second:?}") };
    assert_eq!((&two.command_id, two.request_id.as_str()), (&without, ""));

    let shown = show(&world, &with).await.unwrap();
    assert_eq!((shown.state(), shown.unresolved.as_ref()), (State::Started, Some(one)));
    assert_eq!(show(&world, &fresh_id()).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(show(&world, "x").await.unwrap_err().code(), Code::InvalidArgument);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_effect_is_settled_once_by_one_operator_and_not_while_it_may_be_at_work() {
    let outside = Outside::new();
    let mut world = World::serving(outside.served(), 2, &[]).await;
    world.workspace("w").await;
    let (call, id) = strand(&world, &outside, "git", &fresh_id()).await;
    let early = settle(&world, &id, Found::Failed).await.unwrap_err();
    assert_eq!(early.code(), Code::FailedPrecondition);
    assert!(early.message().contains("may still be at work"), "{early:?}");
    world.sql.run(NOBODY_IS_AT_WORK).await;

    let (one, other) = tokio::join!(settle(&world, &id, Found::Failed), settle(&world, &id, Found::Succeeded));
    let (won, lost) = if one.is_ok() { (Found::Failed, other) } else { (Found::Succeeded, one) };
    let lost = lost.unwrap_err();
    assert!(lost.message().contains("has its outcome"), "{lost:?}");
    let shown = show(&world, &id).await.unwrap();
    assert_eq!((shown.state(), shown.unresolved, shown.acts.len()), (State::Refused, None, 1));
    assert_eq!((shown.acts[0].operator.as_str(), shown.acts[0].reason.as_str()), ("ann", "asked the other side"));
    let word = if won == Found::Failed { "settled as failed" } else { "settled as succeeded" };
    assert_eq!(shown.acts[0].act, word);
    assert!(list(&world, 0, "").await.commands.is_empty());
    // The acts outlive the ledger's memory.
    world.sql.run(&format!("delete from roadstead.command where id = '{id}'")).await;
    let forgotten = show(&world, &id).await.unwrap();
    assert_eq!((forgotten.state(), forgotten.acts.len()), (State::Forgotten, 1));
    drop(call);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_was_settled_as_failed_may_be_made_again_and_one_that_succeeded_may_not() {
    let outside = Outside::new();
    let mut world = World::serving(outside.served(), 1, &[]).await;
    world.workspace("w").await;
    let (failed, failed_id) = strand(&world, &outside, "failed", &fresh_id()).await;
    let (done, done_id) = strand(&world, &outside, "done", &fresh_id()).await;
    let (_, bare_id) = strand(&world, &outside, "bare", "").await;
    world.sql.run(NOBODY_IS_AT_WORK).await;
    settle(&world, &failed_id, Found::Failed).await.unwrap();
    settle(&world, &done_id, Found::Succeeded).await.unwrap();
    settle(&world, &bare_id, Found::Failed).await.unwrap();
    let counts = "select (select count(*) from roadstead.effect), (select count(*) from roadstead.claim), \
        (select sum(used) from roadstead.quota_slot)";
    assert_eq!(world.sql.run(counts).await, [["0", "1", "1"]]);

    assert_eq!(reason(&done.again(&world).await), Some("REQUEST_REPLAY_UNAVAILABLE"));
    assert_eq!(outside.effects("done"), 1);
    // Free: it is executed, and its fate is the same once more.
    assert_eq!(failed.again(&world).await.code(), Code::Unknown);
    assert_eq!(outside.effects("failed"), 2);
    // A day after it was settled, a success is forgotten like any other.
    world.sql.run("update roadstead.claim set completed_at = completed_at - interval '25 hours'").await;
    assert_eq!(done.again(&world).await.code(), Code::Unknown);
    assert_eq!(outside.effects("done"), 2);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_whose_deletion_was_begun_comes_back() {
    let mut world = World::new().await;
    world.workspace("w").await;
    world.sandbox("w", "box").await;
    let reactivate = ReactivateWorkspaceRequest {
        workspace: "w".into(),
        operator: "ann".into(),
        reason: "it was the wrong one".into(),
    };
    let back = async |world: &World| -> Result<ReactivateWorkspaceResponse, tonic::Status> {
        ask(world, AdminCall::ReactivateWorkspace, &reactivate).await
    };
    assert_eq!(back(&world).await.unwrap_err().code(), Code::FailedPrecondition);
    let delete = v1::DeleteWorkspaceRequest { name: "w".into(), ..Default::default() };
    let blocked = world.edge.user_call(&root(), Method::DeleteWorkspace, &delete).await.unwrap_err();
    assert_eq!(blocked.code(), Code::FailedPrecondition);
    let create = create_sandbox("w", "more", "");
    let refused = world.edge.user_call(&root(), Method::CreateSandbox, &create).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    world.quiet().await;

    let marks = "select last_value from pg_sequences where sequencename = 'outbox_id_seq'";
    let before: u64 = world.sql.value(marks).await.parse().unwrap();
    assert_eq!(back(&world).await.unwrap().resource_version, 3);
    let row = "select resource_version, terminating_since is null from roadstead.workspace where name = 'w'";
    assert_eq!(world.sql.run(row).await, [["3", "t"]]);
    assert_eq!(world.sql.value(marks).await.parse::<u64>().unwrap(), before + 1);
    assert_eq!(
        world.sql.value("select reason from roadstead.operator_act where act = 'reactivated'").await,
        reactivate.reason
    );
    world.edge.user_call(&root(), Method::CreateSandbox, &create).await.unwrap();
    let nowhere = ReactivateWorkspaceRequest { workspace: "none".into(), ..reactivate.clone() };
    let missing: Result<ReactivateWorkspaceResponse, _> = ask(&world, AdminCall::ReactivateWorkspace, &nowhere).await;
    assert_eq!(missing.unwrap_err().code(), Code::NotFound);
    world.stop().await;
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
