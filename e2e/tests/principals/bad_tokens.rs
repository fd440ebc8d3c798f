//! E3: tokens that should never pass, at each door and behind the doors.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use prost::Message as _;
use roadstead_bus::door::CommandClient;
use roadstead_bus::{Bus, ConnectSettings};
use roadstead_door::auth::Principal;
use roadstead_door::commands::{Command, Commands};
use roadstead_door::deadline::Deadline;
use roadstead_door::status;
use roadstead_proto::internal::principal::Kind;
use roadstead_proto::internal::read_reply::Outcome;
use roadstead_proto::internal::{self, BootstrapRequest, ReadReply, ReadRequest, RegisterSession, SandboxIdentity};
use roadstead_proto::method::{AuthMode, Method};
use roadstead_proto::role::Role;
use roadstead_proto::sealing::{CipherKeys, seal_token};
use roadstead_proto::subject::{self, ConfigCall, Door, Report};
use roadstead_service_kit::role_keys::RoleKeys;
use roadstead_testkit::Stack;
use tonic::{Code, Status};
use uuid::Uuid;

use crate::forged::Forge;
use crate::raw::{bearer, judge_all};
use crate::requests::{Target, request};
use crate::world::{At, User, World};

const PATIENCE: Duration = Duration::from_secs(5);

async fn generation(world: &World) -> u64 {
    let id = &world.sandbox.target.sandbox_id;
    let mut session = world.stack.session().await;
    session.value(&format!("select generation from roadstead.sandbox where id = '{id}'")).await.parse().unwrap()
}

/// All mistakes, for tokens of the world's sandbox.
async fn bad_tokens(world: &World) -> (Forge, u64, Vec<(&'static str, String)>) {
    let forge = Forge::of(&world.stack);
    let generation = generation(world).await;
    let bad = forge.mutations(&world.sandbox.target.sandbox_id, &world.neighbour.target.sandbox_id, generation);
    assert!(bad.len() >= 15);
    (forge, generation, bad)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_with_any_mistake_is_refused_by_every_method_at_both_doors_and_leaves_no_trace() {
    let world = World::start().await;
    let (forge, generation, mut bad) = bad_tokens(&world).await;
    // The forge itself makes no mistake: without one, its tokens are good.
    let target = &world.sandbox.target;
    let good = forge.good(&target.sandbox_id, generation);
    let let_in = world.bridge.call(Method::GetSandboxConfig, &bearer(&good), request(Method::GetSandboxConfig, target)).await;
    assert_eq!(let_in.code, Code::Ok, "{}", let_in.message);

    let before = (world.state().await, world.commands().await);
    bad.push(("no token of any kind", "0123456789abcdef0123456789abcdef".to_owned()));
    let mut cases: Vec<_> = bad.into_iter().flat_map(|bad| [(At::Edge, bad.clone()), (At::Bridge, bad)]).collect();
    cases.push((At::Bridge, ("a user's token", User::PlatformAdmin.token())));
    let cases = cases.into_iter().flat_map(|case| Method::ALL.iter().map(move |&method| (case.clone(), method)));
    let faults = judge_all(cases, |((at, (mistake, token)), method)| {
        let (world, request) = (&world, request(method, target));
        async move {
            if method.rule().auth == AuthMode::Unauthenticated {
                return None;
            }
            let answer = world.door(at).call(method, &bearer(&token), request).await;
            let good = answer.code == Code::Unauthenticated && answer.message == "a valid credential is required";
            (!good).then(|| format!("{method} at {at:?} with {mistake}: {:?}: {}", answer.code, answer.message))
        }
    })
    .await;
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    assert_eq!((world.state().await, world.commands().await), before, "admission has heard of it");
}

/// What somebody who has taken over a bridge can do: speak at the broker as the bridge.
struct StolenBridge {
    bus: Bus,
    commands: Commands,
    snapshots: CipherKeys,
}

impl StolenBridge {
    async fn take(stack: &Stack) -> Self {
        let keys = RoleKeys::load(&stack.keys_of("supervisor-bridge"), Role::SupervisorBridge).unwrap();
        let settings = ConnectSettings {
            url: stack.command(&[]).as_std().get_envs().find_map(broker_url).unwrap(),
            name: "a stolen bridge".to_owned(),
            role: Role::SupervisorBridge,
            nkey_seed: Some(keys.broker_seed().clone()),
            ca: None,
        };
        let bus = Bus::connect(settings).await.unwrap();
        bus.connected().await;
        let client = CommandClient::new(&bus, 64).await.unwrap();
        let commands = Commands::new(client, keys.door_seal().unwrap(), 64);
        Self { bus, commands, snapshots: keys.snapshots().unwrap() }
    }

    /// Asks config-snapshot.
    async fn read(&self, call: ConfigCall, identity: &SandboxIdentity, message: Vec<u8>) -> Result<(), Status> {
        let passed = SandboxIdentity { token: seal_token(&self.snapshots, &identity.token), ..identity.clone() };
        self.read_as(Door::Sandbox, call, Kind::Sandbox(passed), message).await
    }

    async fn read_as(&self, door: Door, call: ConfigCall, kind: Kind, message: Vec<u8>) -> Result<(), Status> {
        let request = ReadRequest {
            principal: Some(internal::Principal { kind: Some(kind) }),
            request: message.into(),
            deadline: Some((SystemTime::now() + PATIENCE).into()),
            ..Default::default()
        };
        let reply = self.bus.request(subject::config(door, call), request.encode_to_vec().into(), PATIENCE).await;
        let reply = reply.map_err(|error| Status::unavailable(error.to_string()))?;
        match ReadReply::decode(reply).unwrap().outcome.unwrap() {
            Outcome::Status(encoded) => Err(status::decode(&encoded)),
            Outcome::Response(_) | Outcome::SecretResponse(_) => Ok(()),
        }
    }

    /// Sends a report to admission.
    async fn report(&self, report: Report, identity: &SandboxIdentity, message: Vec<u8>) -> Result<(), Status> {
        let command = Command {
            subject: subject::report(report),
            method: report.name(),
            principal: Principal::Sandbox(Arc::new(identity.clone())),
            request: Bytes::from(message),
            deadline: Deadline::after(PATIENCE),
            traceparent: String::new(),
        };
        self.commands.call(command).await.map(|_| ())
    }
}

fn broker_url((name, value): (&std::ffi::OsStr, Option<&std::ffi::OsStr>)) -> Option<String> {
    (name == "ROADSTEAD_NATS_URL").then(|| value.unwrap().to_str().unwrap().to_owned())
}

/// The reports that need the sandbox's own token, with a request of each.
fn reports(target: &Target) -> Vec<(Report, Vec<u8>)> {
    let register = RegisterSession {
        session_id: Uuid::new_v4().to_string(),
        bridge_id: Uuid::new_v4().to_string(),
        instance_id: Uuid::new_v4().to_string(),
        connection_epoch: 1,
        config_push: true,
        provider_readiness: false,
    };
    vec![
        (Report::RegisterSession, register.encode_to_vec()),
        (Report::ReportPolicyStatus, request(Method::ReportPolicyStatus, target)),
        (Report::ReportSandboxConfiguration, request(Method::ReportSandboxConfiguration, target)),
        (Report::UpdateConfig, request(Method::UpdateConfig, target)),
        (Report::RefreshSandboxToken, request(Method::RefreshSandboxToken, target)),
    ]
}

fn reads(target: &Target) -> Vec<(ConfigCall, Vec<u8>)> {
    let bootstrap = BootstrapRequest { sandbox_id: target.sandbox_id.clone() };
    vec![
        (ConfigCall::GetSandboxConfig, request(Method::GetSandboxConfig, target)),
        (ConfigCall::GetSandboxProviderEnvironment, request(Method::GetSandboxProviderEnvironment, target)),
        (ConfigCall::Bootstrap, bootstrap.encode_to_vec()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn services_behind_the_doors_check_the_token_themselves_and_take_no_doors_word_for_it() {
    let world = World::start().await;
    let (forge, generation, bad) = bad_tokens(&world).await;
    let (own, other) = (&world.sandbox.target, &world.neighbour.target);
    let bridge = StolenBridge::take(&world.stack).await;
    let identity =
        |token: String| SandboxIdentity { sandbox_id: own.sandbox_id.clone(), generation, token };

    // With a good token the same requests are let in, so what follows is about the token.
    let good = forge.good(&own.sandbox_id, generation);
    for (call, message) in reads(own) {
        bridge.read(call, &identity(good.clone()), message).await.unwrap_or_else(|status| panic!("{call:?}: {status}"));
    }
    let before = world.state().await;

    // No token at all, and the good token of another sandbox, beside all mistakes.
    let others = forge.good(&other.sandbox_id, generation);
    let stale = forge.good(&own.sandbox_id, generation + 1);
    let bad = bad.into_iter().chain([
        ("no token", String::new()),
        ("another sandbox's token", others),
        ("the token of another run", stale),
    ]);
    let bad = bad.map(|(mistake, token)| (mistake, identity(token))).collect::<Vec<_>>();
    let refused = |what: String, mistake: &str, answer: Result<(), Status>| match answer {
        Err(status) if matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied) => None,
        other => Some(format!("{what} with {mistake}: {other:?}")),
    };
    let read_cases = bad.iter().flat_map(|bad| reads(own).into_iter().map(move |read| (bad, read)));
    let mut faults = judge_all(read_cases, |((mistake, identity), (call, message))| {
        let bridge = &bridge;
        async move { refused(format!("{call:?}"), mistake, bridge.read(call, identity, message).await) }
    })
    .await;
    let report_cases = bad.iter().flat_map(|bad| reports(own).into_iter().map(move |report| (bad, report)));
    faults.extend(
        judge_all(report_cases, |((mistake, identity), (report, message))| {
            let bridge = &bridge;
            async move { refused(format!("{report:?}"), mistake, bridge.report(report, identity, message).await) }
        })
        .await,
    );
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));

    // Nor does a bridge become a user: the users' door to the same service is not its to speak at.
    let user = internal::User { subject: User::Admin.subject(), platform_admin: true, ..Default::default() };
    let message = request(Method::GetSandboxConfig, own);
    let answer = bridge.read_as(Door::Sandbox, ConfigCall::GetSandboxConfig, Kind::User(user.clone()), message.clone());
    let answer = answer.await.unwrap_err();
    assert!(matches!(answer.code(), Code::PermissionDenied | Code::Unauthenticated), "{answer}");
    let silence = bridge.read_as(Door::User, ConfigCall::GetSandboxConfig, Kind::User(user), message).await.unwrap_err();
    assert_eq!(silence.code(), Code::Unavailable, "{silence}");

    assert_eq!(world.state().await, before, "something came of it");
}
