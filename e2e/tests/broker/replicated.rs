//! Three brokers with three copies of everything: whoever reads after a write reads no less, while the brokers are
//! restarted in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use roadstead_e2e::api::{Client, client, request_id, scope};
use roadstead_e2e::policy;
use roadstead_proto::api::datamodel::{ObjectMeta, Provider};
use roadstead_proto::api::sandbox::GetSandboxConfigRequest;
use roadstead_proto::api::v1::sandbox_stream_event::Payload;
use roadstead_proto::api::v1::{
    AttachSandboxProviderRequest, CreateProviderRequest, CreateSandboxRequest, CreateWorkspaceRequest,
    DetachSandboxProviderRequest, SandboxSpec, UpdateConfigRequest, UpdateConfigResponse, WatchSandboxRequest,
};
use roadstead_supervisor::{Observation, Recorder, Settings, Supervisor, TokenSource};
use roadstead_testkit::stack::Plan;
use roadstead_testkit::{Stack, eventually, generate, soak};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tonic::{Code, Status};

const PROVIDER: &str = "copied";
const WRITERS: usize = 2;
/// Turns that are over before and after each restart, and while a broker is away.
const TURNS: usize = 1;
const SOON: Duration = Duration::from_secs(60);
/// What a call may be refused for while a leader is elected.
const PATIENCE: Duration = Duration::from_secs(30);

/// Changes a sandbox through one edge, and looks at it through the other and at each bridge in turn.
struct Writer {
    workspace: String,
    name: String,
    edges: [Client; 2],
    bridges: [String; 2],
    token: TokenSource,
}

impl Writer {
    async fn begin(stack: &Stack, workspace: &str, number: usize) -> Self {
        let name = format!("copied-{number}");
        let request = CreateSandboxRequest {
            workspace_scope: scope(workspace),
            name: name.clone(),
            spec: Some(SandboxSpec::default()),
            request_id: request_id(),
            ..Default::default()
        };
        client(&stack.edge(1)).create_sandbox(request).await.unwrap();
        let mut edges = [1, 2].map(|edge| client(&stack.edge(edge)));
        edges.rotate_left(number % 2);
        let token = TokenSource::File(stack.token(workspace, &name).await);
        Self { workspace: workspace.to_owned(), name, edges, bridges: [1, 2].map(|one| stack.bridge(one)), token }
    }

    async fn turn(&mut self, turn: usize) {
        let told = self.update(turn).await.version;
        let (config, session) = tokio::join!(self.config(), self.session(turn));
        assert!(config >= told, "turn {turn}: {} was given policy {told}, a poll shows {config}", self.name);
        assert!(session >= told, "turn {turn}: {} was given policy {told}, a session begins with {session}", self.name);
        let told = self.attach(turn).await;
        let watch = self.watch().await;
        assert!(watch >= told, "turn {turn}: {} became version {told}, a watch begins with {watch}", self.name);
    }

    async fn update(&self, turn: usize) -> UpdateConfigResponse {
        let request = UpdateConfigRequest {
            workspace_scope: scope(&self.workspace),
            sandbox: self.name.clone(),
            policy: Some(policy::to_host(&format!("t{turn}.example.com"), None)),
            request_id: request_id(),
            ..Default::default()
        };
        served(&self.edges[0], request, |mut api, request| async move { api.update_config(request).await })
            .await
            .into_inner()
    }

    /// The policy's version, as a poll through the other edge tells it.
    async fn config(&self) -> u32 {
        let request = GetSandboxConfigRequest { workspace_scope: scope(&self.workspace), name: self.name.clone() };
        let config =
            served(&self.edges[1], request, |mut api, request| async move { api.get_sandbox_config(request).await });
        config.await.into_inner().version
    }

    /// Attaches the provider, or detaches it; the sandbox's version with that.
    async fn attach(&self, turn: usize) -> u64 {
        let api = &self.edges[0];
        let sandbox = if turn.is_multiple_of(2) {
            let request = AttachSandboxProviderRequest {
                workspace_scope: scope(&self.workspace),
                sandbox: self.name.clone(),
                provider: PROVIDER.to_owned(),
                request_id: request_id(),
                ..Default::default()
            };
            let call =
                served(api, request, |mut api, request| async move { api.attach_sandbox_provider(request).await });
            call.await.into_inner().sandbox
        } else {
            let request = DetachSandboxProviderRequest {
                workspace_scope: scope(&self.workspace),
                sandbox: self.name.clone(),
                provider: PROVIDER.to_owned(),
                request_id: request_id(),
                ..Default::default()
            };
            let call =
                served(api, request, |mut api, request| async move { api.detach_sandbox_provider(request).await });
            call.await.into_inner().sandbox
        };
        sandbox.unwrap().metadata.unwrap().resource_version
    }

    /// The sandbox's version, as the first event of a watch through the other edge tells it.
    async fn watch(&self) -> u64 {
        let request = WatchSandboxRequest {
            workspace_scope: scope(&self.workspace),
            sandbox: self.name.clone(),
            follow_status: true,
            ..Default::default()
        };
        let sandbox = served(&self.edges[1], request, |mut api, request| async move {
            let mut events = api.watch_sandbox(request).await?.into_inner();
            match events.message().await?.and_then(|event| event.payload) {
                Some(Payload::Sandbox(sandbox)) => Ok(sandbox),
                other => panic!("it begins with {other:?}"),
            }
        })
        .await;
        sandbox.metadata.unwrap().resource_version
    }

    /// The policy's version with which a new session begins.
    async fn session(&self, turn: usize) -> u32 {
        let recorder = Recorder::new(100);
        let settings = Settings::new(&self.bridges[turn % 2], &self.workspace, &self.name, self.token.clone());
        let supervisor = Supervisor::start(Settings { observer: Some(recorder.observer()), ..settings }).unwrap();
        let first = recorder.wait_for(PATIENCE, |seen| {
            seen.iter().find_map(|one| match one {
                Observation::Received(frame) => frame.config.as_ref().map(|seen| seen.policy_version),
                _ => None,
            })
        });
        let version = first.await.unwrap_or_else(|| panic!("{}: {:?}", self.name, recorder.observations()));
        supervisor.stop().await;
        version
    }
}

/// Calls until the answer is no word that there can be none now: what is shown counts here, not when.
async fn served<R: Clone, T, F>(api: &Client, request: R, call: impl Fn(Client, R) -> F) -> T
where
    F: Future<Output = Result<T, Status>>,
{
    let began = Instant::now();
    loop {
        match timeout(PATIENCE, call(api.clone(), request.clone())).await.expect("a call ends") {
            Ok(answer) => return answer,
            Err(status) if status.code() == Code::Unavailable && began.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(status) => panic!("{status}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_reads_less_than_was_told_while_replicated_brokers_restart_in_turn() {
    let mut stack = Stack::start(Plan::pairs().brokers(3)).await;
    let workspace = generate::unique("copies");
    let request = CreateWorkspaceRequest { name: workspace.clone(), request_id: request_id(), ..Default::default() };
    client(&stack.edge(1)).create_workspace(request).await.unwrap();
    let provider = Provider {
        metadata: Some(ObjectMeta { name: PROVIDER.to_owned(), ..Default::default() }),
        r#type: "generic".to_owned(),
        credentials: [("TOKEN".to_owned(), request_id())].into(),
        ..Default::default()
    };
    let workspace_scope = scope(&workspace);
    let request = CreateProviderRequest { workspace_scope, provider: Some(provider), request_id: request_id() };
    client(&stack.edge(1)).create_provider(request).await.unwrap();
    let (stop, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        let (stop, turns) = (Arc::clone(&stop), Arc::clone(&turns));
        let mut writer = Writer::begin(&stack, &workspace, number).await;
        writers.spawn(async move {
            let mut turn = 0;
            while !stop.load(Ordering::Relaxed) {
                writer.turn(turn).await;
                turn += 1;
                turns.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    for _ in 0..soak::factor() {
        for number in 0..3 {
            progress(&mut writers, &turns).await;
            stack.brokers()[number].stop().await;
            progress(&mut writers, &turns).await;
            stack.brokers()[number].resume().await;
            let broker = &stack.brokers()[number];
            eventually(SOON, "the broker has caught up", async || {
                let health = broker.monitor("/healthz").await;
                if health["status"] == "ok" { Ok(()) } else { Err(health.to_string()) }
            })
            .await;
        }
    }
    progress(&mut writers, &turns).await;
    stop.store(true, Ordering::Relaxed);
    writers.join_all().await;
    // All was really there three times.
    let streams = stack.brokers()[0].monitor("/jsz?accounts=true&streams=true&config=true").await;
    let streams = streams["account_details"][0]["stream_detail"].as_array().unwrap();
    let copies: Vec<_> = streams.iter().map(|stream| stream["config"]["num_replicas"].as_u64()).collect();
    assert!(copies.len() >= 8 && copies.iter().all(|copies| *copies == Some(3)), "{copies:?}");
}

/// Waits until more turns are over. A writer that failed ends the test with what it found.
async fn progress(writers: &mut JoinSet<()>, turns: &AtomicUsize) {
    let goal = turns.load(Ordering::Relaxed) + TURNS;
    tokio::select! {
        ended = writers.join_next() => panic!("a writer has ended: {ended:?}"),
        () = eventually(SOON, "reads and writes go on", async || turns.load(Ordering::Relaxed) >= goal) => {}
    }
}
