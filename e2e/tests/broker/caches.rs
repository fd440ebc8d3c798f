//! Processes are cut off from the broker while rights and objects change. They may refuse meanwhile; they show nothing that
//! was taken away, and afterwards all of them are right.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, time::Duration};

use roadstead_e2e::api::{Client, client, request_id, scope};
use roadstead_proto::api::{
    datamodel::{ObjectMeta, Provider},
    v1::{
        AddWorkspaceMemberRequest, CreateProviderRequest, CreateSandboxRequest, CreateWorkspaceRequest,
        DeleteProviderRequest, DeleteSandboxRequest, GetProviderRequest, GetSandboxRequest,
        RemoveWorkspaceMemberRequest, SandboxPhase, SandboxSpec, SandboxStreamEvent, WatchSandboxRequest,
        WorkspaceRole, sandbox_stream_event::Payload,
    },
};
use roadstead_supervisor::{Settings, Supervisor, TokenSource};
use roadstead_testkit::{
    Stack, eventually, generate, soak,
    stack::{Plan, Role},
};
use serde_json::json;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::{Code, Request, Status, Streaming};

/// By when a read through who is cut off is refused, and by when all is right after healing.
const BOUND: Duration = Duration::from_secs(5);
/// What a busy machine may take on top.
const SLACK: Duration = Duration::from_secs(2);
const SOON: Duration = Duration::from_secs(30);
/// What a question waits for its answer while it is asked again and again.
const QUESTION: Duration = Duration::from_millis(1500);
/// What a caller waits for a mutation through who is cut off.
const DEADLINE: Duration = Duration::from_secs(4);

const ROOT: &str = "root";
/// Admin of the workspace, and made a user.
const ANNA: &str = "anna";
/// User of the workspace, and removed.
const BEN: &str = "ben";

fn token(subject: &str) -> String {
    format!("token-of-{subject}-0123456789")
}

/// A request as somebody.
fn by<T>(subject: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {}", token(subject)).parse().unwrap());
    request
}

struct World {
    stack: Stack,
    _tokens: tempfile::TempDir,
}

/// What one round is about.
struct Round {
    workspace: String,
    supervisor: Supervisor,
    edges: [Client; 2],
}

impl World {
    async fn start() -> Self {
        let tokens = tempfile::tempdir().unwrap();
        let file = tokens.path().join("tokens.json");
        let entry = |subject: &str| {
            let roles: &[&str] = if subject == ROOT { &["openshell-admin"] } else { &[] };
            json!({"token": token(subject), "subject": subject, "roles": roles})
        };
        let users = [ROOT, ANNA, BEN].map(entry);
        fs::write(&file, json!({"tokens": users}).to_string()).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let plan = Plan::pairs()
            .flag(Role::Edge, format!("--tokens={}", file.display()))
            .flag(Role::Edge, "--allow-unauthenticated-users=never");
        Self { stack: Stack::start(plan).await, _tokens: tokens }
    }
}

impl Round {
    /// A workspace with two members, a provider and two sandboxes; one has a supervisor at the first bridge.
    async fn begin(stack: &Stack) -> Self {
        let workspace = generate::unique("cut");
        let edges = [1, 2].map(|number| client(&stack.edge(number)));
        let mut api = edges[1].clone();
        let request =
            CreateWorkspaceRequest { name: workspace.clone(), request_id: request_id(), ..Default::default() };
        api.create_workspace(by(ROOT, request)).await.unwrap();
        let provider = Provider {
            metadata: Some(ObjectMeta { name: "doomed".to_owned(), ..Default::default() }),
            r#type: "generic".to_owned(),
            credentials: BTreeMap::from([("TOKEN".to_owned(), request_id())]),
            ..Default::default()
        };
        let request = CreateProviderRequest {
            workspace_scope: scope(&workspace),
            provider: Some(provider),
            request_id: request_id(),
        };
        api.create_provider(by(ROOT, request)).await.unwrap();
        for name in ["lasting", "doomed"] {
            let request = CreateSandboxRequest {
                workspace_scope: scope(&workspace),
                name: name.to_owned(),
                spec: Some(SandboxSpec::default()),
                request_id: request_id(),
                ..Default::default()
            };
            api.create_sandbox(by(ROOT, request)).await.unwrap();
        }
        let token = TokenSource::File(stack.token(&workspace, "doomed").await);
        let settings = Settings { bridges: vec![stack.bridge(1)], ..Settings::new("", &workspace, "doomed", token) };
        let round = Self { workspace, supervisor: Supervisor::start(settings).unwrap(), edges };
        round.add(1, ROOT, ANNA, WorkspaceRole::Admin).await.unwrap();
        round.add(1, ROOT, BEN, WorkspaceRole::User).await.unwrap();
        for edge in [0, 1] {
            eventually(SOON, "its user sees the sandbox", async || round.get(edge, BEN, "lasting").await).await;
        }
        eventually(SOON, "READY", async || {
            round.get(1, ROOT, "doomed").await.is_ok_and(|phase| phase == SandboxPhase::Ready)
        })
        .await;
        round
    }

    async fn add(&self, edge: usize, who: &str, subject: &str, role: WorkspaceRole) -> Result<(), Status> {
        let request = AddWorkspaceMemberRequest {
            workspace_scope: scope(&self.workspace),
            principal_subject: subject.to_owned(),
            role: role.into(),
            request_id: request_id(),
        };
        self.edges[edge].clone().add_workspace_member(by(who, request)).await.map(drop)
    }

    async fn remove(&self, subject: &str) {
        let request = RemoveWorkspaceMemberRequest {
            workspace_scope: scope(&self.workspace),
            principal_subject: subject.to_owned(),
            request_id: request_id(),
            ..Default::default()
        };
        self.edges[1].clone().remove_workspace_member(by(ROOT, request)).await.unwrap();
    }

    async fn get(&self, edge: usize, who: &str, sandbox: &str) -> Result<SandboxPhase, Status> {
        let request = GetSandboxRequest { workspace_scope: scope(&self.workspace), name: sandbox.to_owned() };
        let found = self.edges[edge].clone().get_sandbox(by(who, request)).await?.into_inner();
        Ok(found.sandbox.unwrap().status.unwrap().phase())
    }

    async fn get_provider(&self, edge: usize) -> Result<(), Status> {
        let request = GetProviderRequest { workspace_scope: scope(&self.workspace), name: "doomed".to_owned() };
        self.edges[edge].clone().get_provider(by(ROOT, request)).await.map(drop)
    }

    async fn watch(&self, who: &str) -> Streaming<SandboxStreamEvent> {
        let request = WatchSandboxRequest {
            workspace_scope: scope(&self.workspace),
            sandbox: "lasting".to_owned(),
            follow_status: true,
            ..Default::default()
        };
        let mut stream = self.edges[0].clone().watch_sandbox(by(who, request)).await.unwrap().into_inner();
        assert!(version(stream.message().await.unwrap()).is_some());
        stream
    }

    /// Through the second edge: one member goes, another is made less, a sandbox and a provider are deleted.
    async fn take_away(&self) {
        let anna = async {
            self.remove(ANNA).await;
            self.add(1, ROOT, ANNA, WorkspaceRole::User).await.unwrap();
        };
        let mut api = [(); 2].map(|()| self.edges[1].clone());
        let [sandboxes, providers] = &mut api;
        let sandbox = sandboxes.delete_sandbox(by(
            ROOT,
            DeleteSandboxRequest {
                workspace_scope: scope(&self.workspace),
                name: "doomed".to_owned(),
                request_id: request_id(),
                ..Default::default()
            },
        ));
        let provider = providers.delete_provider(by(
            ROOT,
            DeleteProviderRequest {
                workspace_scope: scope(&self.workspace),
                name: "doomed".to_owned(),
                request_id: request_id(),
                ..Default::default()
            },
        ));
        let ((), (), sandbox, provider) = tokio::join!(self.remove(BEN), anna, sandbox, provider);
        sandbox.unwrap();
        provider.unwrap();
    }

    /// Nothing that was taken away is shown by the first edge, and it does not take long over it.
    async fn assert_shows_nothing_old(&self) {
        let begun = Instant::now();
        let anna = timeout(DEADLINE, self.add(0, ANNA, "stranger", WorkspaceRole::User));
        let (ben, doomed, provider, anna) =
            tokio::join!(self.get(0, BEN, "lasting"), self.get(0, ROOT, "doomed"), self.get_provider(0), anna);
        assert!(begun.elapsed() < BOUND + SLACK, "{:?}", begun.elapsed());
        let codes = [ben.map(drop), provider, anna.unwrap_or_else(|_| Err(Status::deadline_exceeded("")))];
        for told in codes {
            let code = told.expect_err("it shows what was taken away").code();
            let refusals = [Code::Unavailable, Code::DeadlineExceeded, Code::PermissionDenied, Code::NotFound];
            assert!(refusals.contains(&code), "{code:?}");
        }
        // Its deletion waits for the supervisor.
        assert!(doomed.is_err() || doomed.is_ok_and(|phase| phase == SandboxPhase::Deleting));
    }

    /// Everybody tells the truth.
    async fn is_right(&self) -> Result<(), String> {
        tokio::try_join!(self.edge_is_right(0), self.edge_is_right(1))?;
        match &self.supervisor.status().borrow().connection {
            None => Ok(()),
            Some(open) => Err(format!("the deleted sandbox has a session: {open:?}")),
        }
    }

    async fn edge_is_right(&self, edge: usize) -> Result<(), String> {
        let told = tokio::join!(
            code(self.get(edge, BEN, "lasting")),
            code(self.add(edge, ANNA, "stranger", WorkspaceRole::User)),
            code(self.get(edge, ROOT, "doomed")),
            code(self.get_provider(edge)),
            code(self.get(edge, ANNA, "lasting")),
        );
        let right = (Code::PermissionDenied, Code::PermissionDenied, Code::NotFound, Code::NotFound, Code::Ok);
        if told == right { Ok(()) } else { Err(format!("edge {}: {told:?}", edge + 1)) }
    }
}

/// What a call is told, if it is soon: one that was sent while all connections broke may take until its next copy.
async fn code<T>(call: impl Future<Output = Result<T, Status>>) -> Code {
    let told = timeout(QUESTION, call).await.unwrap_or_else(|_| Err(Status::deadline_exceeded("")));
    told.map_or_else(|status| status.code(), |_| Code::Ok)
}

fn version(event: Option<SandboxStreamEvent>) -> Option<u64> {
    match event?.payload? {
        Payload::Sandbox(sandbox) => Some(sandbox.metadata?.resource_version),
        _ => None,
    }
}

/// Cuts one process of each of these roles off and lets it find back.
async fn round(stack: &Stack, roles: &[Role]) {
    let round = Round::begin(stack).await;
    let (mut bens, mut roots) = (round.watch(BEN).await, round.watch(ROOT).await);
    let proxies = || roles.iter().map(|role| &stack.node(*role, 1).nats);
    proxies().for_each(|proxy| proxy.cut());

    let mut session = stack.session().await;
    round.take_away().await;
    let change = "update roadstead.sandbox set resource_version = resource_version + 1";
    let lasting = format!("name = 'lasting' and workspace_name = '{}'", round.workspace);
    session.run(&format!("{change} where {lasting}")).await;
    round.assert_shows_nothing_old().await;

    // What was under way is lost, and the connections are made anew.
    proxies().for_each(|proxy| proxy.reset());
    let healed = Instant::now() + BOUND;
    eventually(BOUND + SLACK, "everybody is right", async || round.is_right().await).await;
    let newest = session.value(&format!("select resource_version from roadstead.sandbox where {lasting}")).await;
    let shows = async { while version(roots.message().await.unwrap()).unwrap().to_string() != newest {} };
    timeout_at(healed + SLACK, shows).await.expect("an open watch shows the newest");
    let ended = async {
        loop {
            if let Err(status) = bens.message().await {
                return status.code();
            }
        }
    };
    let ended = timeout_at(healed + SLACK, ended).await.expect("the watch of who was removed has ended");
    assert!(matches!(ended, Code::PermissionDenied | Code::Unavailable), "{ended:?}");
    // Neither did what came late, when it came.
    let strangers = "select count(*) from roadstead.member where subject = 'stranger'";
    assert_eq!(session.value(strangers).await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_cut_off_from_the_broker_shows_nothing_that_was_taken_away_and_is_right_soon_after() {
    let world = World::start().await;
    round(&world.stack, &Role::ALL).await;
    // In a soak each role alone, too.
    for _ in 1..soak::factor() {
        for role in Role::ALL {
            round(&world.stack, &[role]).await;
        }
    }
}
