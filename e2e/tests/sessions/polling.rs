//! Supervisors that ask for their configuration: one that takes no pushes, and one whose bridge does not push for a time.

use std::path::Path;
use std::time::Duration;

use roadstead_e2e::api::{request_id, scope};
use roadstead_e2e::policy::to_host;
use roadstead_proto::api::v1::{
    AttachSandboxProviderRequest, ConfigApplyOutcome, ConfigUpdateOperationState, GetSandboxProviderStatusRequest,
    PolicyStatus, SandboxPhase,
};
use roadstead_supervisor::{CONFIG_FILE, ENVIRONMENT_FILE, Observation, Settings};
use roadstead_testkit::eventually;
use roadstead_testkit::stack::{Plan, Role};

use crate::world::{CROWD, SOON, Supervised, World};

/// A change is asked for within a few seconds.
const ASKED: Duration = Duration::from_secs(5);

impl World {
    /// Gives the sandbox a policy for this host and waits until its supervisor has it and its revision says so; whether
    /// it was asked for.
    async fn changes(&self, name: &str, supervised: &Supervised, host: &str) -> bool {
        let (changed, _) = self.set_policy(name, to_host(host, Some("keys"))).await;
        let frame = supervised.policy(ASKED + CROWD, &changed.policy_hash).await;
        eventually(SOON, &format!("the revision for {host} is loaded"), async || {
            let revision = self.revision(name, changed.version).await;
            if revision.status() == PolicyStatus::Loaded { Ok(()) } else { Err(format!("{revision:?}")) }
        })
        .await;
        assert_eq!(self.phase(name).await, SandboxPhase::Ready);
        frame.polled
    }
}

/// Whether the session that is open pushes.
fn pushes(supervised: &Supervised) -> Option<bool> {
    supervised.supervisor.status().borrow().connection.as_ref().map(|connection| connection.pushes)
}

async fn until_pushes(supervised: &Supervised, expected: bool) {
    eventually(SOON, &format!("a session that pushes: {expected}"), async || {
        let pushes = pushes(supervised);
        if pushes == Some(expected) { Ok(()) } else { Err(format!("{pushes:?}")) }
    })
    .await;
}

/// Every field of what is in effect, whatever the order of its maps.
fn json(file: &Path) -> Result<serde_json::Value, String> {
    let text = std::fs::read(file).map_err(|error| error.to_string())?;
    serde_json::from_slice(&text).map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_that_takes_no_pushes_asks_and_holds_exactly_what_would_be_pushed() {
    let world = World::start(Plan::single()).await;
    world.provider("keys", "API_KEY").await;
    world.provider("more", "MORE_KEY").await;
    world.sandbox("asks", &["keys"]).await;
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let usual = world.settings("asks").await;
    let settings = |takes_pushes, folder: &tempfile::TempDir| Settings {
        takes_pushes,
        poll_interval: Duration::from_secs(1),
        folder: Some(folder.path().to_owned()),
        ..usual.clone()
    };
    let asking = Supervised::start(settings(false, &folders[0]));
    world.until_phase("asks", SandboxPhase::Ready).await;
    assert_eq!(pushes(&asking), Some(false));
    assert!(world.changes("asks", &asking, "asked.example").await, "it was asked for");

    // What ends the operation of a change is told by a call too.
    let attach = AttachSandboxProviderRequest {
        workspace_scope: scope(&world.workspace),
        sandbox: "asks".to_owned(),
        provider: "more".to_owned(),
        request_id: request_id(),
        ..Default::default()
    };
    let receipt = world.api().attach_sandbox_provider(attach).await.unwrap().into_inner().receipt.unwrap();
    eventually(SOON, "the operation is applied", async || {
        let request = GetSandboxProviderStatusRequest {
            workspace_scope: scope(&world.workspace),
            sandbox: "asks".to_owned(),
            receipt_id: receipt.receipt_id.clone(),
            ..Default::default()
        };
        let status = world.api().get_sandbox_provider_status(request).await.unwrap().into_inner().status.unwrap();
        let operation = status.operation.unwrap();
        if operation.state() == ConfigUpdateOperationState::Applied { Ok(()) } else { Err(format!("{operation:?}")) }
    })
    .await;
    asking.supervisor.stop().await;

    // The same instance, so that all is equal.
    let pushed = Supervised::start(settings(true, &folders[1]));
    until_pushes(&pushed, true).await;
    pushed.frame(SOON, "both halves", |frame| frame.config.is_some() && frame.environment.is_some()).await;
    eventually(SOON, "both folders hold the same", async || {
        for name in [CONFIG_FILE, ENVIRONMENT_FILE] {
            let [asked, pushed] = [0, 1].map(|at| json(&folders[at].path().join(name)));
            if pushed? != asked? {
                return Err(format!("{name} differs"));
            }
        }
        Ok(())
    })
    .await;
    let environment = std::fs::read_to_string(folders[0].path().join(ENVIRONMENT_FILE)).unwrap();
    assert!(environment.contains("API_KEY"), "there is something to compare");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_counts_is_asked_for_while_the_bridge_does_not_push_and_comes_by_the_session_while_it_does() {
    let plan = Plan::single().replicas(Role::SupervisorBridge, 2);
    let plan = plan.flag_of(Role::SupervisorBridge, 2, "--config-delivery-mode=poll");
    let mut world = World::start(plan).await;
    world.provider("keys", "API_KEY").await;
    world.sandbox("both", &["keys"]).await;
    let settings = Settings {
        bridges: vec![world.stack.bridge(2), world.stack.bridge(1)],
        poll_interval: Duration::from_secs(1),
        ..world.settings("both").await
    };
    let supervised = Supervised::start(settings);
    world.until_phase("both", SandboxPhase::Ready).await;
    until_pushes(&supervised, false).await;
    assert!(world.changes("both", &supervised, "first.example").await, "asked for");

    world.stack.node_mut(Role::SupervisorBridge, 2).kill().await;
    until_pushes(&supervised, true).await;
    assert!(!world.changes("both", &supervised, "second.example").await, "pushed");

    world.stack.node_mut(Role::SupervisorBridge, 2).resume();
    world.stack.node_mut(Role::SupervisorBridge, 2).ready().await;
    world.stack.node_mut(Role::SupervisorBridge, 1).kill().await;
    until_pushes(&supervised, false).await;
    assert!(world.changes("both", &supervised, "third.example").await, "asked for again");

    // One content after the other, each put into effect once.
    let mut applied = Vec::new();
    let mut newest = None;
    for seen in supervised.recorder.observations() {
        match seen {
            Observation::Received(frame) => newest = frame.config,
            Observation::Answered { outcome: ConfigApplyOutcome::Applied, .. } => applied.extend(newest.take()),
            _ => {}
        }
    }
    let versions = applied.iter().map(|config| config.policy_version).collect::<Vec<_>>();
    assert_eq!(versions, [1, 2, 3, 4], "the supervisor's own policy and the three that it was given");
}
