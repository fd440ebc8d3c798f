//! The main job with nothing in its way: what the demo does, step by step.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use roadstead_e2e::{
    Watched,
    api::{Client, client, is_replay, request_id, scope},
    convergence, policy,
    watched::Seen,
};
use roadstead_proto::api::{
    datamodel::{ObjectMeta, Provider},
    sandbox::SandboxPolicy,
    v1::{self, PolicyStatus, SandboxPhase},
};
use roadstead_supervisor::{ENVIRONMENT_FILE, Observation, Recorder, Settings, Supervisor, TokenSource};
use roadstead_testkit::{Stack, eventually, generate, stack::Plan};

const SOON: Duration = Duration::from_secs(15);
const SANDBOX: &str = "agent";

/// A client of one edge, in one workspace.
struct User {
    api: Client,
    workspace: String,
}

impl User {
    async fn create_workspace(&mut self) {
        let request =
            v1::CreateWorkspaceRequest { name: self.workspace.clone(), request_id: request_id(), ..Default::default() };
        self.api.create_workspace(request).await.unwrap();
    }

    async fn create_provider(&mut self, name: &str, key: &str, value: &str) {
        let provider = Provider {
            metadata: Some(ObjectMeta { name: name.to_owned(), ..Default::default() }),
            r#type: "generic".to_owned(),
            credentials: BTreeMap::from([(key.to_owned(), value.to_owned())]),
            ..Default::default()
        };
        let workspace_scope = scope(&self.workspace);
        let request = v1::CreateProviderRequest { workspace_scope, provider: Some(provider), request_id: request_id() };
        self.api.create_provider(request).await.unwrap();
    }

    fn creation(&self, name: &str, providers: &[&str]) -> v1::CreateSandboxRequest {
        let providers = providers.iter().map(|name| (*name).to_owned()).collect();
        v1::CreateSandboxRequest {
            workspace_scope: scope(&self.workspace),
            name: name.to_owned(),
            spec: Some(v1::SandboxSpec { providers, ..Default::default() }),
            request_id: request_id(),
            ..Default::default()
        }
    }

    async fn set_policy(&mut self, policy: SandboxPolicy) -> v1::UpdateConfigResponse {
        let request = v1::UpdateConfigRequest {
            workspace_scope: scope(&self.workspace),
            sandbox: SANDBOX.to_owned(),
            policy: Some(policy),
            request_id: request_id(),
            ..Default::default()
        };
        self.api.update_config(request).await.unwrap().into_inner()
    }

    async fn until_loaded(&self, version: u32) {
        eventually(SOON, "the policy is loaded", async || {
            let request = v1::GetSandboxPolicyStatusRequest {
                workspace_scope: scope(&self.workspace),
                sandbox: SANDBOX.to_owned(),
                version,
                ..Default::default()
            };
            let answer = self.api.clone().get_sandbox_policy_status(request).await.unwrap().into_inner();
            let status = answer.revision.map(|revision| revision.status());
            if status == Some(PolicyStatus::Loaded) { Ok(()) } else { Err(format!("it is {status:?}")) }
        })
        .await;
    }

    async fn attach(&mut self, provider: &str) {
        let request = v1::AttachSandboxProviderRequest {
            workspace_scope: scope(&self.workspace),
            sandbox: SANDBOX.to_owned(),
            provider: provider.to_owned(),
            request_id: request_id(),
            ..Default::default()
        };
        assert!(self.api.attach_sandbox_provider(request).await.unwrap().into_inner().attached);
    }

    async fn stop(&mut self) {
        let (workspace_scope, name) = (scope(&self.workspace), SANDBOX.to_owned());
        let request = v1::StopSandboxRequest { workspace_scope, name, request_id: request_id() };
        self.api.stop_sandbox(request).await.unwrap();
    }

    async fn start(&mut self) {
        let (workspace_scope, name) = (scope(&self.workspace), SANDBOX.to_owned());
        let request = v1::StartSandboxRequest { workspace_scope, name, request_id: request_id() };
        self.api.start_sandbox(request).await.unwrap();
    }

    async fn delete(&mut self, name: &str) {
        let request = v1::DeleteSandboxRequest {
            workspace_scope: scope(&self.workspace),
            name: name.to_owned(),
            request_id: request_id(),
            ..Default::default()
        };
        self.api.delete_sandbox(request).await.unwrap();
    }
}

/// Whether the supervisor has answered that an update with this policy is applied.
fn is_applied(seen: &[Observation], hash: &str) -> bool {
    let update = seen.iter().find_map(|one| match one {
        Observation::Received(frame) if frame.config.as_ref()?.policy_hash == hash => Some(&frame.update_id),
        _ => None,
    });
    seen.iter().any(|one| match one {
        Observation::Answered { update_id, outcome, .. } => {
            Some(update_id) == update && *outcome == v1::ConfigApplyOutcome::Applied
        }
        _ => false,
    })
}

async fn until_installed(folder: &Path, value: &str) {
    eventually(SOON, "the value is in the supervisor's folder", async || {
        fs::read_to_string(folder.join(ENVIRONMENT_FILE)).is_ok_and(|text| text.contains(value))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_main_job_runs_from_the_first_creation_to_the_last_deletion() {
    let stack = Stack::start(Plan::pairs()).await;
    let workspace = generate::unique("main");
    let mut user = User { api: client(&stack.edge(1)), workspace: workspace.clone() };
    let secrets = [request_id(), request_id()];

    user.create_workspace().await;
    user.create_provider("first", "FIRST_TOKEN", &secrets[0]).await;
    user.api.create_sandbox(user.creation(SANDBOX, &["first"])).await.unwrap();
    let watch = Watched::open(&[stack.edge(2)], &workspace, SANDBOX);
    let seen = watch.until(SOON, "anything", |seen| seen.shown().next().is_some()).await;
    assert_eq!(seen.shown().next().unwrap().1, SandboxPhase::Provisioning);

    let (folder, recorder) = (stack.folder().join("supervised"), Recorder::new(10_000));
    let token = TokenSource::File(stack.token(&workspace, SANDBOX).await);
    let supervisor = Supervisor::start(Settings {
        folder: Some(folder.clone()),
        observer: Some(recorder.observer()),
        ..Settings::new(stack.bridge(1), &workspace, SANDBOX, token)
    })
    .unwrap();
    watch.until(SOON, "READY", |seen| seen.has_shown(SandboxPhase::Ready)).await;

    let changed = user.set_policy(policy::to_host("api.example.com", None)).await;
    let applied = recorder.wait_for(SOON, |seen| is_applied(seen, &changed.policy_hash).then_some(())).await;
    assert!(applied.is_some(), "the policy was not applied: {:?}", recorder.observations());
    user.until_loaded(changed.version).await;

    let creation = user.creation("twice", &[]);
    let first = user.api.create_sandbox(creation.clone()).await.unwrap();
    let second = client(&stack.edge(2)).create_sandbox(creation).await.unwrap();
    assert!(!is_replay(first.metadata()) && is_replay(second.metadata()));
    let id = |answer: v1::SandboxResponse| answer.sandbox.unwrap().metadata.unwrap().id;
    assert_eq!(id(first.into_inner()), id(second.into_inner()));

    user.create_provider("second", "SECOND_TOKEN", &secrets[1]).await;
    user.attach("second").await;
    user.set_policy(policy::to_host("api.example.com", Some("second"))).await;
    until_installed(&folder, &secrets[1]).await;

    user.stop().await;
    watch.until(SOON, "STOPPED", |seen| seen.has_shown(SandboxPhase::Stopped)).await;
    assert!(supervisor.status().borrow().connection.is_none(), "a stopped sandbox has a session");
    user.start().await;
    // A token of the run before is void.
    stack.token(&workspace, SANDBOX).await;
    watch
        .until(SOON, "READY again", |seen| seen.current().is_some_and(|(_, phase)| phase == SandboxPhase::Ready))
        .await;

    user.delete(SANDBOX).await;
    let seen = watch.until(SOON, "its end", Seen::is_over).await;
    assert_eq!(seen.disorder(), None);
    user.delete("twice").await;
    let mut session = stack.session().await;
    assert!(convergence::rows(&mut session, &workspace).await.is_empty());
    supervisor.stop().await;
}
