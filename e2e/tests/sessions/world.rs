//! A system with sandboxes and their supervisors.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use roadstead_e2e::Watched;
use roadstead_e2e::api::{Client, client, request_id, scope};
use roadstead_proto::api::datamodel::{ObjectMeta, Provider};
use roadstead_proto::api::sandbox::SandboxPolicy;
use roadstead_proto::api::v1::{
    CreateProviderRequest, CreateSandboxRequest, CreateWorkspaceRequest, GetSandboxPolicyStatusRequest,
    GetSandboxRequest, SandboxPhase, SandboxPolicyRevision, SandboxSpec, UpdateConfigRequest, UpdateConfigResponse,
};
use roadstead_supervisor::{Frame, Observation, Recorder, Settings, Supervisor, TokenSource};
use roadstead_testkit::stack::{Node, Plan, Role};
use roadstead_testkit::{Stack, eventually, generate};

/// Longest wait for what has no bound of its own.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// Slack of a bound for a loaded machine.
pub(crate) const CROWD: Duration = Duration::from_secs(1);

const RECORDED: usize = 100_000;

/// The system, and a workspace in it.
pub(crate) struct World {
    pub(crate) stack: Stack,
    pub(crate) workspace: String,
}

/// A sandbox's supervisor, and what it has seen.
pub(crate) struct Supervised {
    pub(crate) supervisor: Supervisor,
    pub(crate) recorder: Recorder,
}

impl World {
    pub(crate) async fn start(plan: Plan) -> Self {
        let world = Self { stack: Stack::start(plan).await, workspace: generate::unique("sessions") };
        let request =
            CreateWorkspaceRequest { name: world.workspace.clone(), request_id: request_id(), ..Default::default() };
        world.api().create_workspace(request).await.unwrap();
        world
    }

    pub(crate) fn api(&self) -> Client {
        client(&self.stack.edge(1))
    }

    /// A provider with one credential.
    pub(crate) async fn provider(&self, name: &str, key: &str) {
        let provider = Provider {
            metadata: Some(ObjectMeta { name: name.to_owned(), ..Default::default() }),
            r#type: "generic".to_owned(),
            credentials: BTreeMap::from([(key.to_owned(), request_id())]),
            ..Default::default()
        };
        let request = CreateProviderRequest {
            workspace_scope: scope(&self.workspace),
            provider: Some(provider),
            request_id: request_id(),
        };
        self.api().create_provider(request).await.unwrap();
    }

    /// A sandbox with these providers; its id.
    pub(crate) async fn sandbox(&self, name: &str, providers: &[&str]) -> String {
        let providers = providers.iter().map(|&provider| provider.to_owned()).collect();
        let request = CreateSandboxRequest {
            workspace_scope: scope(&self.workspace),
            name: name.to_owned(),
            spec: Some(SandboxSpec { providers, ..Default::default() }),
            request_id: request_id(),
            ..Default::default()
        };
        let created = self.api().create_sandbox(request).await.unwrap().into_inner();
        created.sandbox.unwrap().metadata.unwrap().id
    }

    /// Settings of a supervisor that knows all bridges, with a token that was minted just now.
    pub(crate) async fn settings(&self, name: &str) -> Settings {
        let token = TokenSource::File(self.stack.token(&self.workspace, name).await);
        let bridges = self.stack.nodes().iter().filter(|node| node.role() == Role::SupervisorBridge).map(Node::url);
        Settings { bridges: bridges.collect(), ..Settings::new("", &self.workspace, name, token) }
    }

    /// A token of a sandbox's supervisor.
    pub(crate) async fn token(&self, name: &str) -> String {
        let file = self.stack.token(&self.workspace, name).await;
        std::fs::read_to_string(file).unwrap().trim().to_owned()
    }

    /// Starts a supervisor.
    pub(crate) async fn supervise(&self, name: &str) -> Supervised {
        Supervised::start(self.settings(name).await)
    }

    /// A sandbox whose supervisor has made it READY.
    pub(crate) async fn ready_sandbox(&self, name: &str, providers: &[&str]) -> Supervised {
        self.sandbox(name, providers).await;
        let supervised = self.supervise(name).await;
        self.until_phase(name, SandboxPhase::Ready).await;
        supervised
    }

    pub(crate) fn watch(&self, name: &str) -> Watched {
        Watched::open(&[self.stack.edge(1)], &self.workspace, name)
    }

    pub(crate) async fn phase(&self, name: &str) -> SandboxPhase {
        let request = GetSandboxRequest { workspace_scope: scope(&self.workspace), name: name.to_owned() };
        let found = self.api().get_sandbox(request).await.unwrap().into_inner();
        found.sandbox.unwrap().status.unwrap().phase()
    }

    pub(crate) async fn until_phase(&self, name: &str, phase: SandboxPhase) {
        eventually(SOON, &format!("{name} is {phase:?}"), async || {
            let is = self.phase(name).await;
            if is == phase { Ok(()) } else { Err(format!("it is {is:?}")) }
        })
        .await;
    }

    /// The request that changes something of a sandbox's configuration.
    pub(crate) fn update(&self, name: &str) -> UpdateConfigRequest {
        UpdateConfigRequest {
            workspace_scope: scope(&self.workspace),
            sandbox: name.to_owned(),
            request_id: request_id(),
            ..Default::default()
        }
    }

    /// Gives a sandbox a policy; the answer and when it came.
    pub(crate) async fn set_policy(&self, name: &str, policy: SandboxPolicy) -> (UpdateConfigResponse, Instant) {
        let request = UpdateConfigRequest { policy: Some(policy), ..self.update(name) };
        let changed = self.api().update_config(request).await.unwrap().into_inner();
        (changed, Instant::now())
    }

    pub(crate) async fn revision(&self, name: &str, version: u32) -> SandboxPolicyRevision {
        let request = GetSandboxPolicyStatusRequest {
            workspace_scope: scope(&self.workspace),
            sandbox: name.to_owned(),
            version,
            ..Default::default()
        };
        self.api().get_sandbox_policy_status(request).await.unwrap().into_inner().revision.unwrap()
    }
}

impl Supervised {
    pub(crate) fn start(settings: Settings) -> Self {
        let recorder = Recorder::new(RECORDED);
        let settings = Settings { observer: Some(recorder.observer()), ..settings };
        Self { supervisor: Supervisor::start(settings).unwrap(), recorder }
    }

    /// The first update for which `wanted` holds.
    pub(crate) async fn frame(&self, within: Duration, what: &str, wanted: impl Fn(&Frame) -> bool) -> Frame {
        let frame = self.recorder.wait_for(within, |seen| {
            seen.iter().find_map(|one| match one {
                Observation::Received(frame) if wanted(frame) => Some(Frame::clone(frame)),
                _ => None,
            })
        });
        frame
            .await
            .unwrap_or_else(|| panic!("not within {within:?}: an update with {what}; it has seen {:#?}", self.tail()))
    }

    /// The first update with the policy of this hash.
    pub(crate) async fn policy(&self, within: Duration, hash: &str) -> Frame {
        self.frame(within, hash, |frame| has_policy(frame, hash)).await
    }

    /// How many updates had the policy of this hash.
    pub(crate) fn times_sent(&self, hash: &str) -> usize {
        self.recorder.frames().iter().filter(|frame| has_policy(frame, hash)).count()
    }

    /// The session that is open.
    pub(crate) async fn session(&self, within: Duration) -> String {
        let mut status = self.supervisor.status();
        let open = tokio::time::timeout(within, status.wait_for(|status| status.connection.is_some())).await;
        let open = open.unwrap_or_else(|_| panic!("no session within {within:?}: {:#?}", self.tail()));
        open.unwrap().connection.clone().unwrap().session_id
    }

    fn tail(&self) -> Vec<Observation> {
        let seen = self.recorder.observations();
        seen[seen.len().saturating_sub(6)..].to_vec()
    }
}

pub(crate) fn has_policy(frame: &Frame, hash: &str) -> bool {
    frame.config.as_ref().is_some_and(|config| config.policy_hash == hash)
}
