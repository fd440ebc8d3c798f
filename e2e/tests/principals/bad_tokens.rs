//! E3: tokens that should never pass, at each door and behind the doors.

use prost::Message as _;
use roadstead_e2e::StolenBridge;
use roadstead_proto::internal::principal::Kind;
use roadstead_proto::internal::{self, BootstrapRequest, RegisterSession, SandboxIdentity};
use roadstead_proto::method::{AuthMode, Method};
use roadstead_proto::subject::{ConfigCall, Door, Report};
use tonic::{Code, Status};
use uuid::Uuid;

use crate::forged::Forge;
use crate::requests::{Target, request, sync};
use crate::world::{At, User, World};
use roadstead_e2e::raw::{bearer, judge_all};

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
    let let_in =
        world.bridge.call(Method::GetSandboxConfig, &bearer(&good), request(Method::GetSandboxConfig, target)).await;
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
        (Report::ReportMainProcessExit, request(Method::ReportMainProcessExit, target)),
        (Report::FinalizeMainProcessExit, request(Method::FinalizeMainProcessExit, target)),
        (Report::ReportEndpointStatus, request(Method::ReportEndpointStatus, target)),
        (Report::UpdateConfig, sync(target)),
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
    let mut world = World::start().await;
    let bridge = StolenBridge::take(&mut world.stack).await;
    let (forge, generation, bad) = bad_tokens(&world).await;
    let (own, other) = (&world.sandbox.target, &world.neighbour.target);
    let identity = |token: String| SandboxIdentity { sandbox_id: own.sandbox_id.clone(), generation, token };

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
    let silence =
        bridge.read_as(Door::User, ConfigCall::GetSandboxConfig, Kind::User(user), message).await.unwrap_err();
    assert_eq!(silence.code(), Code::Unavailable, "{silence}");

    assert_eq!(world.state().await, before, "something came of it");
}
