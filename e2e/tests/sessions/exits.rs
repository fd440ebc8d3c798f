//! The end of a main process, as its supervisor reports it, and what the restart policy makes of it.

use std::time::{Duration, SystemTime};

use prost::Message as _;
use prost_types::Timestamp;
use roadstead_e2e::api::{request_id, scope};
use roadstead_proto::api::v1::{
    CreateSandboxRequest, GetSandboxRequest, SandboxPhase, SandboxRestartPolicy, SandboxSpec, SandboxStatus,
    StartSandboxRequest, StopSandboxRequest,
};
use roadstead_testkit::eventually;
use roadstead_testkit::stack::{Plan, Role};

use crate::world::{SOON, Supervised, World};

const OFTEN: u32 = 8;

async fn running(world: &World, name: &str, policy: SandboxRestartPolicy) -> Supervised {
    let mut spec = SandboxSpec::default();
    spec.set_restart_policy(policy);
    let request = CreateSandboxRequest {
        workspace_scope: scope(&world.workspace),
        name: name.to_owned(),
        spec: Some(spec),
        request_id: request_id(),
        ..Default::default()
    };
    world.api().create_sandbox(request).await.unwrap();
    again(world, name).await
}

/// A new instance connects and runs.
async fn again(world: &World, name: &str) -> Supervised {
    let supervised = world.supervise(name).await;
    world.until_phase(name, SandboxPhase::Ready).await;
    supervised
}

async fn status(world: &World, name: &str) -> SandboxStatus {
    let request = GetSandboxRequest { workspace_scope: scope(&world.workspace), name: name.to_owned() };
    world.api().get_sandbox(request).await.unwrap().into_inner().sandbox.unwrap().status.unwrap()
}

/// As after so many restarts in a row that the next one has a pause of two minutes, however long it goes on running.
async fn has_run_often(world: &World, name: &str) {
    let status = SandboxStatus {
        restart_count: OFTEN,
        main_process_started_time: Some((SystemTime::now() + Duration::from_secs(3600)).into()),
        ..Default::default()
    };
    let hex: String = status.encode_to_vec().iter().map(|byte| format!("{byte:02x}")).collect();
    // Of a field that is there twice, the last one counts.
    let often = format!("update roadstead.sandbox set status = status || '\\x{hex}' where name = '{name}'");
    world.stack.session().await.run(&often).await;
}

/// The deadline of a sandbox comes.
async fn is_due(world: &World, name: &str) {
    let due = format!("update roadstead.sandbox set provisioning_deadline = clock_timestamp() where name = '{name}'");
    world.stack.session().await.run(&due).await;
}

fn reason(status: &SandboxStatus) -> &str {
    &status.conditions[0].reason
}

fn seconds(from: Option<Timestamp>, to: Option<Timestamp>) -> i64 {
    to.unwrap().seconds - from.unwrap().seconds
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_is_shown_once_with_its_code_and_followed_as_the_policy_says() {
    use SandboxRestartPolicy::{Never, OnFailure};
    let world = World::start(Plan::single().replicas(Role::Admission, 2)).await;
    for (name, policy, code, phase, why) in [
        ("done", Never, 0, SandboxPhase::Completed, "MainProcessCompleted"),
        ("failed", Never, 7, SandboxPhase::Error, "MainProcessFailed"),
        ("succeeded", OnFailure, 0, SandboxPhase::Completed, "MainProcessCompleted"),
    ] {
        let supervised = running(&world, name, policy).await;
        let watched = world.watch(name);
        watched.until(SOON, "READY", |seen| seen.has_shown(SandboxPhase::Ready)).await;
        supervised.supervisor.exit(code).await;
        let shown = watched.until(SOON, "the end", |seen| seen.has_shown(phase)).await;
        assert_eq!(shown.disorder(), None);
        assert_eq!(shown.shown().filter(|(_, shown)| *shown == phase).count(), 1, "{shown:?}");
        let ended = status(&world, name).await;
        assert_eq!((ended.phase(), reason(&ended), ended.exit_code), (phase, why, Some(code)));
        assert_eq!((ended.restart_count, ended.next_restart_time), (0, None));
        assert!(ended.main_process_started_time.is_some());
    }

    // A user may start what has ended. Its next instance needs a token of the new run.
    let start = StartSandboxRequest {
        workspace_scope: scope(&world.workspace),
        name: "failed".to_owned(),
        request_id: request_id(),
    };
    world.api().start_sandbox(start).await.unwrap();
    let _started = again(&world, "failed").await;
    assert_eq!(status(&world, "failed").await.exit_code, None);

    let supervised = running(&world, "restarts", OnFailure).await;
    let watched = world.watch("restarts");
    watched.until(SOON, "READY", |seen| seen.has_shown(SandboxPhase::Ready)).await;
    supervised.supervisor.exit(137).await;
    // At once the first time.
    let shown = watched.until(SOON, "the restart", |seen| seen.has_shown(SandboxPhase::Starting)).await;
    let restarted = status(&world, "restarts").await;
    assert_eq!((restarted.restart_count, restarted.next_restart_time, restarted.exit_code), (1, None, Some(137)));
    assert_eq!(shown.disorder(), None);
    let supervised = again(&world, "restarts").await;
    let present = status(&world, "restarts").await;
    assert_eq!((present.restart_count, present.exit_code), (1, None));
    // With a pause if there were more in a row; a stop cancels it.
    has_run_often(&world, "restarts").await;
    supervised.supervisor.exit(1).await;
    world.until_phase("restarts", SandboxPhase::Error).await;
    let waits = status(&world, "restarts").await;
    assert_eq!(waits.restart_count, OFTEN);
    assert!((127..=129).contains(&seconds(waits.conditions[0].transition_time, waits.next_restart_time)), "{waits:?}");
    let stop = StopSandboxRequest {
        workspace_scope: scope(&world.workspace),
        name: "restarts".to_owned(),
        request_id: request_id(),
    };
    world.api().stop_sandbox(stop).await.unwrap();
    world.until_phase("restarts", SandboxPhase::Stopped).await;
    let stopped = status(&world, "restarts").await;
    assert_eq!(stopped.next_restart_time, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_outlives_any_admission_that_is_killed_before_it_is_due() {
    let mut world = World::start(Plan::single().replicas(Role::Admission, 2)).await;
    for killed in [1, 2] {
        let name = format!("killed-{killed}");
        let supervised = running(&world, &name, SandboxRestartPolicy::Always).await;
        let watched = world.watch(&name);
        watched.until(SOON, "READY", |seen| seen.has_shown(SandboxPhase::Ready)).await;
        has_run_often(&world, &name).await;
        supervised.supervisor.exit(1).await;
        watched.until(SOON, "the end", |seen| seen.has_shown(SandboxPhase::Error)).await;
        world.stack.node_mut(Role::Admission, killed).kill().await;
        is_due(&world, &name).await;
        let shown = watched.until(SOON, "the restart", |seen| seen.has_shown(SandboxPhase::Starting)).await;
        assert_eq!(shown.disorder(), None);
        assert_eq!(status(&world, &name).await.restart_count, OFTEN + 1, "{shown:?}");
        world.stack.node_mut(Role::Admission, killed).resume();
        world.stack.node_mut(Role::Admission, killed).ready().await;
        let _next = again(&world, &name).await;
        // Nobody does it a second time.
        let restarts = eventually(Duration::from_secs(5), "the sandbox rests", async || {
            let status = status(&world, &name).await;
            (status.phase() == SandboxPhase::Ready).then_some(status.restart_count)
        });
        assert_eq!(restarts.await, OFTEN + 1);
    }
}
