//! S11: a supervisor that never answers does not hold back what it is to be sent, least of all a revocation.

use std::time::{Duration, Instant};

use roadstead_e2e::api::{request_id, scope};
use roadstead_e2e::policy::to_host;
use roadstead_proto::api::sandbox::{SettingValue, setting_value::Value};
use roadstead_proto::api::v1::{DetachSandboxProviderRequest, UpdateConfigRequest};
use roadstead_supervisor::Behaviour;
use roadstead_testkit::{soak, stack::Plan};
use tokio::time::MissedTickBehavior;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::IntervalStream;

use crate::world::{CROWD, SOON, World};

const WINDOW: Duration = Duration::from_secs(1);
/// How long changes go on before the detach.
const NOISE: Duration = Duration::from_secs(3);

/// Changes a setting 20 times a second, for ever.
async fn noise(world: &World) {
    let mut interval = tokio::time::interval(Duration::from_millis(50));
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ticks = IntervalStream::new(interval);
    let mut on = false;
    while ticks.next().await.is_some() {
        on = !on;
        let request = UpdateConfigRequest {
            setting_key: "ocsf_json_enabled".to_owned(),
            setting_value: Some(SettingValue { value: Some(Value::BoolValue(on)) }),
            ..world.update("silent")
        };
        world.api().update_config(request).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_detach_and_a_new_policy_reach_a_supervisor_that_never_answers_within_a_second_amid_changes() {
    let world = World::start(Plan::single()).await;
    world.provider("key", "SILENT_TOKEN").await;
    let supervised = world.ready_sandbox("silent", &["key"]).await;
    world.set_policy("silent", to_host("bound.example", Some("key"))).await;
    let has_token = |frame: &roadstead_supervisor::Frame| {
        frame.environment.as_ref().is_some_and(|environment| environment.names.contains(&"SILENT_TOKEN".to_owned()))
    };
    supervised.frame(SOON, "the credential", has_token).await;
    supervised.supervisor.behave(Behaviour::Silent);

    let revoke = async {
        // The supervisor has been silent for a while, with frames unanswered.
        let started = Instant::now();
        let noisy = |seen: &[roadstead_supervisor::Observation]| {
            (seen.len() > 3 && started.elapsed() > soak::period(NOISE)).then_some(())
        };
        supervised.recorder.wait_for(soak::period(NOISE) + SOON, noisy).await.expect("updates go on");

        let detach = DetachSandboxProviderRequest {
            workspace_scope: scope(&world.workspace),
            sandbox: "silent".to_owned(),
            provider: "key".to_owned(),
            request_id: request_id(),
            ..Default::default()
        };
        assert!(world.api().detach_sandbox_provider(detach).await.unwrap().into_inner().detached);
        let detached = Instant::now();
        let without = |frame: &roadstead_supervisor::Frame| {
            frame.at >= started && frame.environment.is_some() && !has_token(frame)
        };
        let frame = supervised.frame(SOON, "the environment without the credential", without).await;
        let took = frame.at.saturating_duration_since(detached);
        assert!(took <= WINDOW + CROWD, "the detach took {took:?}");

        let (denied, committed) = world.set_policy("silent", to_host("other.example", None)).await;
        let took = supervised.policy(SOON, &denied.policy_hash).await.at.saturating_duration_since(committed);
        assert!(took <= WINDOW + CROWD, "the policy took {took:?}");
    };
    tokio::select! {
        () = revoke => {}
        () = noise(&world) => {}
    }
}
