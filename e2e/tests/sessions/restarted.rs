//! A sandbox that was started anew has nothing to do with its earlier run: not with its token, nor with its session.

use prost::Message as _;
use roadstead_e2e::StolenBridge;
use roadstead_e2e::api::{client, request_id, scope};
use roadstead_proto::api::sandbox::GetSandboxConfigRequest;
use roadstead_proto::api::v1::{
    ConfigApplyOutcome, GetSandboxProviderEnvironmentRequest, PushSandboxLogsRequest, RefreshSandboxTokenRequest,
    ReportMainProcessExitRequest, ReportPolicyStatusRequest, SandboxPhase, StartSandboxRequest, StopSandboxRequest,
};
use roadstead_proto::internal::{EndSession, HalfResult, SandboxIdentity, SessionResult};
use roadstead_proto::subject::Report;
use roadstead_supervisor::{Observation, Settings, TokenSource};
use roadstead_testkit::stack::Plan;
use tonic::{Code, Request};

use crate::world::{SOON, Supervised, World};

fn with_token<T>(message: T, token: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}

async fn restart(world: &World) {
    let (workspace_scope, name) = (scope(&world.workspace), "reborn".to_owned());
    let stop =
        StopSandboxRequest { workspace_scope: workspace_scope.clone(), name: name.clone(), request_id: request_id() };
    world.api().stop_sandbox(stop).await.unwrap();
    world.until_phase("reborn", SandboxPhase::Stopped).await;
    let start = StartSandboxRequest { workspace_scope, name, request_id: request_id() };
    world.api().start_sandbox(start).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_an_earlier_run_is_refused_everywhere() {
    let world = World::start(Plan::single()).await;
    let id = world.sandbox("reborn", &[]).await;
    let settings = world.settings("reborn").await;
    let TokenSource::File(file) = &settings.token else { panic!("a file") };
    let old = std::fs::read_to_string(file).unwrap().trim().to_owned();
    let first = Supervised::start(settings);
    world.until_phase("reborn", SandboxPhase::Ready).await;
    first.supervisor.stop().await;
    world.until_phase("reborn", SandboxPhase::Provisioning).await;
    let again =
        Supervised::start(Settings { token: TokenSource::Given(old.clone().into()), ..world.settings("reborn").await });
    world.until_phase("reborn", SandboxPhase::Ready).await;

    restart(&world).await;
    // The supervisor of the earlier run, which goes on trying.
    let refused = again.recorder.wait_for(SOON, |seen| {
        seen.iter().find_map(|one| match one {
            Observation::Ended { reason, .. } if reason.starts_with("Unauthenticated") => Some(()),
            _ => None,
        })
    });
    refused.await.expect("its supervisor is refused");

    let mut bridge = client(&world.stack.bridge(1));
    let config = GetSandboxConfigRequest { name: "reborn".to_owned(), workspace_scope: None };
    let environment = GetSandboxProviderEnvironmentRequest { sandbox_id: id.clone(), ..Default::default() };
    let status = ReportPolicyStatusRequest { sandbox_id: id.clone(), version: 1, status: 2, ..Default::default() };
    let logs = PushSandboxLogsRequest { sandbox_id: id.clone(), ..Default::default() };
    let answers = [
        bridge.push_sandbox_logs(with_token(tokio_stream::iter([logs]), &old)).await.err(),
        bridge.get_sandbox_config(with_token(config, &old)).await.err(),
        bridge.get_sandbox_provider_environment(with_token(environment, &old)).await.err(),
        bridge.report_policy_status(with_token(status, &old)).await.err(),
        bridge.refresh_sandbox_token(with_token(RefreshSandboxTokenRequest::default(), &old)).await.err(),
    ];
    for answer in answers {
        let refused = answer.expect("it is refused");
        assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    }

    // The token of the new run is good.
    let _present = world.supervise("reborn").await;
    world.until_phase("reborn", SandboxPhase::Ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_word_of_an_earlier_session_does_not_move_the_present_one_and_a_genuine_end_does() {
    let mut world = World::start(Plan::single()).await;
    let stolen = StolenBridge::take(&mut world.stack).await;
    let id = world.sandbox("reborn", &[]).await;
    let settings = world.settings("reborn").await;
    let old_instance = settings.instance_id.to_string();
    let first = Supervised::start(settings);
    world.until_phase("reborn", SandboxPhase::Ready).await;
    let old_session = first.session(SOON).await;
    restart(&world).await;
    first.supervisor.stop().await;

    let second = world.supervise("reborn").await;
    world.until_phase("reborn", SandboxPhase::Ready).await;
    let session = second.session(SOON).await;
    assert_ne!(session, old_session);
    let watched = world.watch("reborn");
    watched.until(SOON, "READY", |seen| seen.has_shown(SandboxPhase::Ready)).await;

    let identity = SandboxIdentity { sandbox_id: id.clone(), generation: 1, token: String::new() };
    let failed = HalfResult { outcome: ConfigApplyOutcome::FailedClosed.into(), ..Default::default() };
    let result = SessionResult {
        session_id: old_session.clone(),
        number: 1_000_000,
        config: Some(failed),
        ..Default::default()
    };
    let end = EndSession { session_id: old_session, number: 1_000_000, reason: "late".to_owned() };
    let refused = stolen.report(Report::SessionResult, &identity, result.encode_to_vec()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted, "{refused}");
    // Its end has been told before, so that telling it again is no fault.
    stolen.report(Report::EndSession, &identity, end.encode_to_vec()).await.unwrap();

    // The end of the earlier run's main process, told late by whoever still has it to tell.
    let exit = ReportMainProcessExitRequest { sandbox_id: id.clone(), instance_id: old_instance, exit_code: 1 };
    let late = with_token(exit, &world.token("reborn").await);
    client(&world.stack.bridge(1)).report_main_process_exit(late).await.unwrap();

    let mut side = world.stack.session().await;
    let row = side.run(&format!("select phase, session_id from roadstead.sandbox where id = '{id}'")).await;
    assert_eq!(row, [["2".to_owned(), session]]);

    second.supervisor.exit(1).await;
    let seen = watched.until(SOON, "ERROR", |seen| seen.has_shown(SandboxPhase::Error)).await;
    let phases = seen.shown().map(|(_, phase)| phase).collect::<Vec<_>>();
    assert_eq!(phases[..2], [SandboxPhase::Ready, SandboxPhase::Error], "it left READY once, for a genuine end");
}
