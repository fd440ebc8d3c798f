//! A supervisor's session, as the bridge reports it.

use futures_util::future::join_all;
use prost::Message as _;
use roadstead_bus::queue::backlog;
use roadstead_proto::api::sandbox::SandboxPolicy;
use roadstead_proto::api::v1::{self, ConfigApplyOutcome, SandboxPhase};
use roadstead_proto::internal::{EndSession, HalfResult, Principal, RegisterSession, SessionRegistered, SessionResult};
use roadstead_proto::method::Method;
use roadstead_proto::stream::Consumer;
use roadstead_proto::subject::Report;
use roadstead_testkit::eventually;
use tonic::Code;
use uuid::Uuid;

use crate::world::{LONG, World, root, sandbox_of, scope};

pub(crate) fn register(session: u128, instance: u128, epoch: u64) -> RegisterSession {
    RegisterSession {
        session_id: Uuid::from_u128(session).to_string(),
        bridge_id: Uuid::from_u128(500).to_string(),
        instance_id: Uuid::from_u128(instance).to_string(),
        connection_epoch: epoch,
        config_push: true,
        provider_readiness: false,
    }
}

pub(crate) fn applied(session: u128, number: u64, loaded_version: u32) -> SessionResult {
    SessionResult {
        session_id: Uuid::from_u128(session).to_string(),
        number,
        config: Some(HalfResult { outcome: ConfigApplyOutcome::Applied.into(), ..Default::default() }),
        loaded_version,
        ..Default::default()
    }
}

fn end(session: u128) -> EndSession {
    EndSession { session_id: Uuid::from_u128(session).to_string(), number: 1, reason: "closed".into() }
}

struct Connected {
    id: String,
    supervisor: Principal,
}

impl Connected {
    async fn in_(world: &World) -> Self {
        world.workspace("w").await;
        let id = world.sandbox("w", "box").await.metadata.unwrap().id;
        Self { supervisor: world.supervisor(&id, 1), id }
    }

    async fn phase(&self, world: &World) -> SandboxPhase {
        let mut side = world.session().await;
        let phase = side.value(&format!("select phase from roadstead.sandbox where id = '{}'", self.id)).await;
        SandboxPhase::try_from(phase.parse::<i32>().unwrap()).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_that_come_together_share_transactions_and_each_takes_effect_once() {
    const SESSIONS: u128 = 40;
    let mut world = World::new().await;
    world.workspace("w").await;
    let mut supervisors = Vec::new();
    for session in 1..=SESSIONS {
        let id = world.sandbox("w", &format!("box-{session}")).await.metadata.unwrap().id;
        let supervisor = world.supervisor(&id, 1);
        world.bridge.report(&supervisor, Report::RegisterSession, &register(session, session, 1)).await.unwrap();
        supervisors.push((session, supervisor));
    }
    let report_all = async |world: &World, number: u64, outcome: ConfigApplyOutcome| {
        let results = supervisors.iter().map(async |(session, supervisor)| {
            let config = Some(HalfResult { outcome: outcome.into(), ..Default::default() });
            let result = SessionResult { config, ..applied(*session, number, 0) };
            world.bridge.report(supervisor, Report::SessionResult, &result).await
        });
        join_all(results).await
    };
    // Until all are there, none is settled: however fast the machine, they come together.
    let (bus, postgres) = (world.admission_bus().await, &world.replicas[0].postgres);
    postgres.cut();
    let all_there = async {
        eventually(LONG, "all results are in hand", async || {
            backlog(&bus, Consumer::Reports).await.unwrap().unacked == SESSIONS as u64
        })
        .await;
        postgres.heal();
    };
    let (told, ()) = tokio::join!(report_all(&world, 2, ConfigApplyOutcome::Applied), all_there);
    assert!(told.iter().all(Result::is_ok));
    let ready = "select count(*) from roadstead.sandbox where phase = 2 and session_result_number = 2";
    assert_eq!(world.sql.value(ready).await, SESSIONS.to_string());
    let transactions = world.sql.value("select count(distinct xmin::text) from roadstead.sandbox").await;
    assert!(transactions.parse::<u128>().unwrap() <= SESSIONS / 2, "{transactions}");

    let versions = "select sum(resource_version) from roadstead.sandbox";
    let before = world.sql.value(versions).await;
    assert!(report_all(&world, 1, ConfigApplyOutcome::FailedClosed).await.iter().all(Result::is_ok), "late ones");
    assert_eq!((world.sql.value(versions).await, world.sql.value(ready).await), (before, SESSIONS.to_string()));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_makes_ready_takes_policies_and_its_end_is_seen() {
    let mut world = World::new().await;
    let sandbox = Connected::in_(&world).await;
    let policy = v1::UpdateConfigRequest {
        sandbox: "box".into(),
        workspace_scope: scope("w"),
        policy: Some(SandboxPolicy { version: 1, ..Default::default() }),
        ..Default::default()
    };
    world.edge.user_call(&root(), Method::UpdateConfig, &policy).await.unwrap();

    let (body, _) =
        world.bridge.report(&sandbox.supervisor, Report::RegisterSession, &register(1, 10, 1)).await.unwrap();
    assert!(!SessionRegistered::decode(body).unwrap().workspace_id.is_empty());
    assert_eq!(sandbox.phase(&world).await, SandboxPhase::Provisioning);
    let other = register(2, 11, 1);
    let held = world.bridge.report(&sandbox.supervisor, Report::RegisterSession, &other).await.unwrap_err();
    assert_eq!(held.code(), Code::Aborted);

    world.bridge.report(&sandbox.supervisor, Report::SessionResult, &applied(1, 1, 1)).await.unwrap();
    assert_eq!(sandbox.phase(&world).await, SandboxPhase::Ready);
    assert_eq!(world.sql.value("select status from roadstead.policy_revision").await, "2");
    let foreign = world.bridge.report(&sandbox.supervisor, Report::SessionResult, &applied(7, 9, 0)).await.unwrap_err();
    assert_eq!(foreign.code(), Code::Aborted);

    // The same instance, connected anew: no flap.
    world.bridge.report(&sandbox.supervisor, Report::RegisterSession, &register(3, 10, 2)).await.unwrap();
    assert_eq!(sandbox.phase(&world).await, SandboxPhase::Ready);
    world.bridge.report(&sandbox.supervisor, Report::EndSession, &end(1)).await.unwrap();
    assert_eq!(sandbox.phase(&world).await, SandboxPhase::Ready, "the end of a superseded session is no news");
    world.bridge.report(&sandbox.supervisor, Report::EndSession, &end(3)).await.unwrap();
    assert_eq!(sandbox.phase(&world).await, SandboxPhase::Provisioning);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_and_delete_wait_for_the_session_and_a_start_voids_the_token() {
    let mut world = World::new().await;
    let sandbox = Connected::in_(&world).await;
    let stop = v1::StopSandboxRequest { name: "box".into(), workspace_scope: scope("w"), ..Default::default() };
    let start = v1::StartSandboxRequest { name: "box".into(), workspace_scope: scope("w"), ..Default::default() };
    world.bridge.report(&sandbox.supervisor, Report::RegisterSession, &register(1, 10, 1)).await.unwrap();
    world.bridge.report(&sandbox.supervisor, Report::SessionResult, &applied(1, 1, 0)).await.unwrap();

    let stopping = sandbox_of(world.edge.user_call(&root(), Method::StopSandbox, &stop).await);
    assert_eq!(stopping.status.unwrap().phase(), SandboxPhase::Stopping);
    world.bridge.report(&sandbox.supervisor, Report::EndSession, &end(1)).await.unwrap();
    assert_eq!(sandbox.phase(&world).await, SandboxPhase::Stopped);

    let starting = sandbox_of(world.edge.user_call(&root(), Method::StartSandbox, &start).await);
    assert_eq!(starting.status.unwrap().phase(), SandboxPhase::Starting);
    let void =
        world.bridge.report(&sandbox.supervisor, Report::RegisterSession, &register(2, 10, 2)).await.unwrap_err();
    assert_eq!(void.code(), Code::Unauthenticated);
    let renewed = world.supervisor(&sandbox.id, 2);
    world.bridge.report(&renewed, Report::RegisterSession, &register(2, 10, 2)).await.unwrap();

    let delete = v1::DeleteSandboxRequest { name: "box".into(), workspace_scope: scope("w"), ..Default::default() };
    let (body, _) = world.edge.user_call(&root(), Method::DeleteSandbox, &delete).await.unwrap();
    assert_eq!(v1::DeleteSandboxResponse::decode(body).unwrap().outcome(), v1::DeletionOutcome::Accepted);
    assert_eq!(sandbox.phase(&world).await, SandboxPhase::Deleting);
    world.bridge.report(&renewed, Report::EndSession, &end(2)).await.unwrap();
    assert_eq!(world.count("sandbox").await, 0);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_fills_what_is_empty_and_takes_no_users_place() {
    let mut world = World::new().await;
    let sandbox = Connected::in_(&world).await;
    let sync = |version: u32| v1::UpdateConfigRequest {
        sandbox: "box".into(),
        policy: Some(SandboxPolicy { version, ..Default::default() }),
        ..Default::default()
    };
    world.bridge.report(&sandbox.supervisor, Report::UpdateConfig, &sync(1)).await.unwrap();
    let other = world.bridge.report(&sandbox.supervisor, Report::UpdateConfig, &sync(2)).await.unwrap_err();
    assert_eq!(other.code(), Code::Aborted);
    let setting = v1::UpdateConfigRequest {
        sandbox: "box".into(),
        setting_key: "ocsf_json_enabled".into(),
        delete_setting: true,
        ..Default::default()
    };
    let denied = world.bridge.report(&sandbox.supervisor, Report::UpdateConfig, &setting).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    assert_eq!(world.count("policy_revision").await, 1);
    world.stop().await;
}
