//! A watch ends when its caller's rights do, and no other one does.

use std::collections::BTreeMap;
use std::time::Duration;

use prost_types::Timestamp;
use roadstead_e2e::api::{Client, client, request_id, scope};
use roadstead_proto::api::v1::sandbox_stream_event::Payload;
use roadstead_proto::api::v1::{
    AddWorkspaceMemberRequest, CreateSandboxRequest, CreateWorkspaceRequest, DeleteSandboxRequest,
    DeleteWorkspaceRequest, RemoveWorkspaceMemberRequest, SandboxSpec, SandboxStreamEvent, WatchSandboxRequest,
    WorkspaceRole,
};
use roadstead_service_kit::clock;
use roadstead_service_kit::whole_file::{self, Existing};
use roadstead_testkit::sql::Session;
use roadstead_testkit::stack::{Plan, Role};
use roadstead_testkit::{Stack, eventually, generate};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Request, Status, Streaming};

/// Longest wait for what has no bound of its own.
const SOON: Duration = Duration::from_secs(30);
/// Within which a stream ends.
const BOUND: Duration = Duration::from_secs(5);
/// For a busy machine.
const SLACK: Duration = Duration::from_secs(1);
/// Administrates the platform.
const ROOT: &str = "root";
const SANDBOX: &str = "s";
const FILE: &str = "tokens.json";

struct World {
    stack: Stack,
    workspace: String,
    side: Session,
    /// What the token file says.
    users: BTreeMap<&'static str, Value>,
    tokens: TempDir,
}

/// A stream of one user at one edge.
struct Watch {
    edge: usize,
    user: &'static str,
    stream: Streaming<SandboxStreamEvent>,
    shown: u64,
}

impl World {
    /// Two of each role, a sandbox, and these users: each with what its token says beside its subject, and its role in
    /// the workspace.
    async fn start(users: &[(&'static str, Value, Option<WorkspaceRole>)]) -> Self {
        let tokens = tempfile::tempdir().unwrap();
        let known = users.iter().map(|(user, says, _)| (*user, says.clone())).collect();
        write(&tokens, &known);
        let file = tokens.path().join(FILE);
        let stack = Stack::start(Plan::pairs().flag(Role::Edge, format!("--tokens={}", file.display()))).await;
        let side = stack.session().await;
        let world = Self { workspace: generate::unique("rights"), stack, side, users: known, tokens };
        let name = world.workspace.clone();
        let create = CreateWorkspaceRequest { name, request_id: request_id(), ..Default::default() };
        world.api(1).create_workspace(world.sends(ROOT, create)).await.unwrap();
        let create = CreateSandboxRequest {
            workspace_scope: scope(&world.workspace),
            name: SANDBOX.to_owned(),
            spec: Some(SandboxSpec::default()),
            request_id: request_id(),
            ..Default::default()
        };
        world.api(1).create_sandbox(world.sends(ROOT, create)).await.unwrap();
        for (user, _, role) in users {
            let Some(role) = role else { continue };
            let add = AddWorkspaceMemberRequest {
                workspace_scope: scope(&world.workspace),
                principal_subject: (*user).to_owned(),
                role: (*role).into(),
                request_id: request_id(),
            };
            world.api(1).add_workspace_member(world.sends(ROOT, add)).await.unwrap();
        }
        world
    }

    fn api(&self, edge: usize) -> Client {
        client(&self.stack.edge(edge))
    }

    /// The request, sent by this user.
    fn sends<M>(&self, user: &str, message: M) -> Request<M> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", format!("Bearer {}", token(user)).parse().unwrap());
        request
    }

    async fn watch(&self, edge: usize, user: &'static str) -> Result<Watch, Status> {
        let request = WatchSandboxRequest {
            workspace_scope: scope(&self.workspace),
            sandbox: SANDBOX.to_owned(),
            follow_status: true,
            ..Default::default()
        };
        let stream = self.api(edge).watch_sandbox(self.sends(user, request)).await?.into_inner();
        let mut watch = Watch { edge, user, stream, shown: 0 };
        watch.shows(1).await;
        Ok(watch)
    }

    /// How opening a watch is refused in the end; while it recovers, an edge says so.
    async fn refused(&self, edge: usize, user: &'static str) -> Code {
        eventually(SOON, "an answer to a watch", async || match self.watch(edge, user).await {
            Err(status) if status.code() == Code::Unavailable => Err(status.to_string()),
            Err(status) => Ok(status.code()),
            Ok(_) => Ok(Code::Ok),
        })
        .await
    }

    /// The sandbox changes; its new version.
    async fn change(&mut self) -> u64 {
        let workspace = &self.workspace;
        let sql = format!(
            "update roadstead.sandbox set resource_version = resource_version + 1
            where workspace_name = '{workspace}' returning resource_version"
        );
        self.side.value(&sql).await.parse().unwrap()
    }

    async fn remove_member(&self, edge: usize, user: &str) {
        let remove = RemoveWorkspaceMemberRequest {
            workspace_scope: scope(&self.workspace),
            principal_subject: user.to_owned(),
            request_id: request_id(),
            ..Default::default()
        };
        self.api(edge).remove_workspace_member(self.sends(ROOT, remove)).await.unwrap();
    }

    /// The token file says something else of this user, or nothing more.
    fn says(&mut self, user: &'static str, says: Option<Value>) {
        self.users.remove(user);
        self.users.extend(says.map(|says| (user, says)));
        write(&self.tokens, &self.users);
    }
}

impl Watch {
    /// Waits until that version, or a later one, is shown.
    async fn shows(&mut self, version: u64) {
        let by = Instant::now() + SOON;
        while self.shown < version {
            let event = timeout_at(by, self.stream.message()).await;
            let event = event.unwrap_or_else(|_| panic!("not shown to {}: {version}", self.user));
            let event = event.unwrap_or_else(|status| panic!("the watch of {} ended: {status}", self.user));
            let Some(Payload::Sandbox(sandbox)) = event.expect("the stream goes on").payload else { panic!("a state") };
            let next = sandbox.metadata.unwrap().resource_version;
            assert!(next > self.shown, "{next} was shown after {}", self.shown);
            self.shown = next;
        }
    }

    /// How it ends within the bound.
    async fn ends(mut self, since: Instant) -> Code {
        let (edge, user) = (self.edge, self.user);
        loop {
            match timeout_at(since + BOUND + SLACK, self.stream.message()).await {
                Err(_) => panic!("the watch of {user} at edge {edge} is still open"),
                Ok(Ok(Some(_))) => {}
                Ok(Ok(None)) => return Code::Ok,
                Ok(Err(status)) => return status.code(),
            }
        }
    }
}

fn token(user: &str) -> String {
    format!("token-of-{user}-0123456789")
}

fn write(folder: &TempDir, users: &BTreeMap<&'static str, Value>) {
    let entry = |(user, says): (&&str, &Value)| {
        let mut entry = says.clone();
        (entry["token"], entry["subject"]) = (json!(token(user)), json!(user));
        entry
    };
    let entries = users.iter().map(entry).collect::<Vec<_>>();
    let text = json!({ "tokens": entries }).to_string();
    whole_file::write(&folder.path().join(FILE), text.as_bytes(), 0o600, Existing::Replace).unwrap();
}

/// Both streams of each of these users.
fn of<'a>(watches: &mut Vec<Watch>, users: &'a [&'static str]) -> impl Iterator<Item = Watch> + use<'a> {
    let (theirs, others) = watches.drain(..).partition::<Vec<_>, _>(|watch| users.contains(&watch.user));
    assert_eq!(theirs.len(), 2 * users.len());
    *watches = others;
    theirs.into_iter()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_within_five_seconds_of_its_caller_losing_membership_token_or_platform_role_and_no_other_does() {
    let (admin, user) = (Some(WorkspaceRole::Admin), Some(WorkspaceRole::User));
    let plain = || json!({});
    let platform = || json!({"roles": ["openshell-admin"]});
    let mut world = World::start(&[
        (ROOT, platform(), None),
        ("removed", plain(), user),
        ("lowered", plain(), admin),
        ("forgotten", plain(), user),
        ("expiring", plain(), user),
        ("narrowed", plain(), user),
        ("demoted", platform(), None),
        ("cut", plain(), user),
    ])
    .await;
    let mut watches = Vec::new();
    for user in world.users.keys().copied() {
        for edge in [1, 2] {
            watches.push(world.watch(edge, user).await.unwrap());
        }
    }

    let since = Instant::now();
    world.remove_member(2, "removed").await;
    for watch in of(&mut watches, &["removed"]) {
        assert_eq!(watch.ends(since).await, Code::PermissionDenied);
    }

    world.side.run("update roadstead.member set role = 1 where subject = 'lowered'").await;
    let since = Instant::now();
    world.says("forgotten", None);
    for watch in of(&mut watches, &["forgotten"]) {
        assert_eq!(watch.ends(since).await, Code::Unauthenticated);
    }
    let since = Instant::now();
    world.says("narrowed", Some(json!({"scopes": ["other:read"]})));
    world.says("demoted", Some(plain()));
    for watch in of(&mut watches, &["narrowed"]) {
        assert_eq!(watch.ends(since).await, Code::PermissionDenied);
    }
    for watch in of(&mut watches, &["demoted"]) {
        assert_eq!(watch.ends(since).await, Code::Unavailable, "it is somebody else now");
    }
    assert_eq!(world.refused(1, "demoted").await, Code::PermissionDenied);
    // Seen before it expires, so that it is the time that ends it.
    let expires = Instant::now() + Duration::from_secs(3);
    let time = Timestamp::from(clock::now() + Duration::from_secs(3));
    world.says("expiring", Some(json!({"expires": time.to_string()})));
    for watch in of(&mut watches, &["expiring"]) {
        assert_eq!(watch.ends(expires).await, Code::Unauthenticated);
        assert!(Instant::now() >= expires);
    }

    // Who has lost nothing goes on, with whatever role.
    let version = world.change().await;
    for watch in &mut watches {
        watch.shows(version).await;
    }

    // Lost while its edge cannot hear of it.
    world.stack.node(Role::Edge, 1).nats.cut();
    let since = Instant::now();
    world.remove_member(2, "cut").await;
    for watch in of(&mut watches, &["cut"]) {
        let expected = if watch.edge == 1 { Code::Unavailable } else { Code::PermissionDenied };
        assert_eq!(watch.ends(since).await, expected);
    }
    let version = world.change().await;
    world.stack.node(Role::Edge, 1).nats.heal();
    assert_eq!(world.refused(1, "cut").await, Code::PermissionDenied);
    for watch in of(&mut watches, &[ROOT]) {
        let mut watch = watch;
        watch.shows(version).await;
        watches.push(watch);
    }

    // The workspace goes after what is in it, and so do its watches.
    watches.retain(|watch| watch.user == ROOT);
    watches.push(world.watch(2, "lowered").await.unwrap());
    let delete = DeleteSandboxRequest {
        workspace_scope: scope(&world.workspace),
        name: SANDBOX.to_owned(),
        request_id: request_id(),
        ..Default::default()
    };
    world.api(2).delete_sandbox(world.sends(ROOT, delete)).await.unwrap();
    let delete = || DeleteWorkspaceRequest { name: world.workspace.clone(), ..Default::default() };
    eventually(SOON, "the workspace can go", async || world.api(2).delete_workspace(world.sends(ROOT, delete())).await)
        .await;
    let since = Instant::now();
    for watch in watches {
        assert_eq!(watch.ends(since).await, Code::Ok);
    }
}
