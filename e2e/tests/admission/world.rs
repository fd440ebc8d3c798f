//! Two of each role, a workspace, users of a token file, and creations whose effects can be counted.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, time::Duration};

use roadstead_e2e::{
    api::{Client, client, is_replay, request_id, scope},
    effect::{self, Mutation, Told},
};
use roadstead_proto::api::{
    datamodel::{ObjectMeta, Provider},
    v1::{
        CreateProviderRequest, CreateSandboxRequest, CreateWorkspaceRequest, DeleteSandboxRequest,
        DeleteWorkspaceRequest, HealthRequest, SandboxResponse, SandboxSpec,
    },
};
use roadstead_testkit::{
    Stack, eventually, generate,
    sql::{Rows, Session},
    stack::{Plan, Role},
};
use serde_json::json;
use tempfile::TempDir;
use tokio::{sync::Mutex, task::JoinSet};
use tonic::{Request, Response, Status};

/// Longest wait for what has no bound of its own.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// A success is forgotten after a day.
pub(crate) const A_DAY: &str = "interval '25 hours'";

/// Counts the marks of each object from then on: one for each transaction that changed it.
const JOURNAL: &str = "
    create schema marks;
    create table marks.mark (kind text, object_id uuid);
    create function marks.record() returns trigger language plpgsql security definer as $$
    begin
        insert into marks.mark values (new.kind, new.object_id);
        return null;
    end $$;
    create trigger note_mark after insert on roadstead.outbox for each row execute function marks.record()";

/// A user whom the edges know by a token. All of them administrate the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) provider: &'static str,
    pub(crate) issuer: &'static str,
    pub(crate) subject: &'static str,
}

impl User {
    /// A user of one issuer.
    pub(crate) const fn named(subject: &'static str) -> Self {
        Self { provider: "oidc", issuer: "https://one.example", subject }
    }

    fn token(self) -> String {
        format!("{}-{}-{}-0123456789", self.provider, self.issuer.trim_start_matches("https://"), self.subject)
    }

    /// The request, sent by this user.
    pub(crate) fn sends<M>(self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", format!("Bearer {}", self.token()).parse().unwrap());
        request
    }

    fn entry(self) -> serde_json::Value {
        let Self { provider, issuer, subject } = self;
        json!({"token": self.token(), "provider": provider, "issuer": issuer, "subject": subject,
            "roles": ["openshell-admin"]})
    }
}

/// The system.
pub(crate) struct World {
    pub(crate) stack: Stack,
    pub(crate) workspace: String,
    side: Mutex<Session>,
    tokens: TempDir,
}

impl World {
    /// Starts it. Whoever presents no token is the local developer, who administrates the platform too.
    pub(crate) async fn start(plan: Plan, users: &[User]) -> Self {
        let tokens = tempfile::tempdir().unwrap();
        let file = token_file(&tokens, users);
        let plan = plan
            .flag(Role::Edge, format!("--tokens={}", file.display()))
            .flag(Role::Edge, "--allow-unauthenticated-users");
        let stack = Stack::start(plan).await;
        let mut side = stack.session().await;
        side.run(JOURNAL).await;
        effect::note(&mut side).await;
        let world = Self { workspace: generate::unique("fire"), stack, side: Mutex::new(side), tokens };
        world.create_workspace(&world.workspace).await;
        world
    }

    /// Both edges read who their users are from one file; this one is restarted, so that it surely knows these now.
    pub(crate) async fn knows(&mut self, edge: usize, users: &[User]) {
        token_file(&self.tokens, users);
        self.stack.node_mut(Role::Edge, edge).crash().await;
    }

    /// A client of an edge, numbered from 1.
    pub(crate) fn api(&self, edge: usize) -> Client {
        client(&self.stack.edge(edge))
    }

    /// Clients of both edges in turn, each with a connection of its own that is open.
    pub(crate) async fn clients(&self, count: usize) -> Vec<Client> {
        let opened = |number: usize| {
            let mut api = self.api(1 + number % 2);
            async move {
                api.health(HealthRequest::default()).await.unwrap();
                api
            }
        };
        together((0..count).map(opened)).await
    }

    pub(crate) async fn create_workspace(&self, name: &str) {
        let request = CreateWorkspaceRequest { name: name.to_owned(), request_id: request_id(), ..Default::default() };
        self.api(1).create_workspace(request).await.unwrap();
    }

    pub(crate) async fn delete_workspace(&self, name: &str) {
        let request = DeleteWorkspaceRequest { name: name.to_owned(), request_id: request_id(), ..Default::default() };
        self.api(1).delete_workspace(request).await.unwrap();
    }

    /// A provider in the workspace.
    pub(crate) async fn create_provider(&self, name: &str) {
        create_provider(self.api(1), &self.workspace, name).await;
    }

    /// A creation in the workspace.
    pub(crate) fn creation(&self, name: &str, request_id: &str) -> CreateSandboxRequest {
        CreateSandboxRequest {
            workspace_scope: scope(&self.workspace),
            name: name.to_owned(),
            spec: Some(SandboxSpec::default()),
            request_id: request_id.to_owned(),
            ..Default::default()
        }
    }

    /// A deletion in the workspace.
    pub(crate) fn deletion(&self, name: &str, request_id: &str) -> DeleteSandboxRequest {
        DeleteSandboxRequest {
            workspace_scope: scope(&self.workspace),
            name: name.to_owned(),
            request_id: request_id.to_owned(),
            ..Default::default()
        }
    }

    /// Runs SQL beside the system.
    pub(crate) async fn sql(&self, sql: &str) -> Rows {
        self.side.lock().await.run(sql).await
    }

    /// How many rows `table`, with a condition if wanted, has.
    pub(crate) async fn count(&self, table: &str) -> u64 {
        self.side.lock().await.value(&format!("select count(*) from roadstead.{table}")).await.parse().unwrap()
    }

    /// How many commands and claims there are, and what the quota counts.
    pub(crate) async fn ledger(&self) -> [u64; 3] {
        let used = self.sql("select coalesce(sum(used), 0) from roadstead.quota_slot").await;
        [self.count("command").await, self.count("claim").await, used[0][0].parse().unwrap()]
    }

    /// How many transactions have changed an object.
    pub(crate) async fn marks(&self, object_id: &str) -> u64 {
        let rows = self.sql(&format!("select count(*) from marks.mark where object_id = '{object_id}'")).await;
        rows[0][0].parse().unwrap()
    }

    /// The ids of the workspace's sandboxes, by name.
    pub(crate) async fn sandboxes(&self) -> BTreeMap<String, String> {
        let workspace = &self.workspace;
        let sql = format!("select name, id from roadstead.sandbox where workspace_name = '{workspace}'");
        self.sql(&sql).await.into_iter().map(|row| (row[0].clone(), row[1].clone())).collect()
    }

    /// The oracle over creations whose names begin with `m`.
    pub(crate) async fn assert_sound(&self, mutations: &[Mutation]) {
        effect::assert_sound(&mut *self.side.lock().await, &self.workspace, mutations).await;
    }

    /// Everything in the ledger is a day older.
    pub(crate) async fn a_day_later(&self) {
        self.sql(&format!(
            "begin;
            update roadstead.claim set created_at = created_at - {A_DAY}, completed_at = completed_at - {A_DAY};
            update roadstead.effect set since = since - {A_DAY};
            update roadstead.command set created_at = created_at - {A_DAY}, settled_at = settled_at - {A_DAY},
                deadline = deadline - {A_DAY};
            commit"
        ))
        .await;
    }

    /// Turns successes with these request ids into what stands in the ledger when an admission died while their effect
    /// was outside Postgres: begun, claimed, counted, and without an outcome.
    pub(crate) async fn unresolve(&self, request_ids: &[String]) {
        let ids = request_ids.join("', '");
        let turned = self
            .sql(&format!(
                "with begun as (
                    update roadstead.claim set completed_at = null, receipt = '' where request_id in ('{ids}')
                    returning command_id, method
                ), open as (
                    update roadstead.command set outcome = 0, body = '', settled_at = null
                    where id in (select command_id from begun)
                )
                insert into roadstead.effect (command_id, method, claimed)
                select command_id, method, true from begun returning 1"
            ))
            .await;
        assert_eq!(turned.len(), request_ids.len());
    }

    /// Waits until both admissions count so many claims without an outcome.
    pub(crate) async fn until_unresolved(&self, count: usize) {
        for number in [1, 2] {
            eventually(SOON, &format!("admission {number} counts {count} claims without an outcome"), async || {
                let series = "roadstead_claims_unresolved{role=\"admission\"}";
                self.stack.node(Role::Admission, number).metric(series).await == count as f64
            })
            .await;
        }
    }

    /// A metric of both processes of a role together; `labels` beside the role, each with a comma before it.
    pub(crate) async fn metric(&self, role: Role, name: &str, labels: &str) -> f64 {
        let series = format!("roadstead_{name}{{role=\"{}\"{labels}}}", role.name());
        self.stack.node(role, 1).metric(&series).await + self.stack.node(role, 2).metric(&series).await
    }
}

fn token_file(folder: &TempDir, users: &[User]) -> std::path::PathBuf {
    let file = folder.path().join("tokens.json");
    let entries: Vec<_> = users.iter().map(|user| user.entry()).collect();
    fs::write(&file, json!({"tokens": entries}).to_string()).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    file
}

/// What a client got: the response, and whether it says that it is a replay.
pub(crate) type Answer<T> = Result<(T, bool), Status>;

pub(crate) fn answer<T>(answer: Result<Response<T>, Status>) -> Answer<T> {
    answer.map(|answer| {
        let replayed = is_replay(answer.metadata());
        (answer.into_inner(), replayed)
    })
}

/// Creates a provider with one credential.
pub(crate) async fn create_provider(mut api: Client, workspace: &str, name: &str) {
    let provider = Provider {
        metadata: Some(ObjectMeta { name: name.to_owned(), ..Default::default() }),
        r#type: "generic".to_owned(),
        credentials: BTreeMap::from([("TOKEN".to_owned(), request_id())]),
        ..Default::default()
    };
    let workspace_scope = scope(workspace);
    let request = CreateProviderRequest { workspace_scope, provider: Some(provider), request_id: request_id() };
    api.create_provider(request).await.unwrap();
}

/// Creates a sandbox; its id.
pub(crate) async fn create(mut api: Client, request: impl tonic::IntoRequest<CreateSandboxRequest>) -> Answer<String> {
    answer(api.create_sandbox(request).await).map(|(response, replayed)| (id(response), replayed))
}

pub(crate) fn id(response: SandboxResponse) -> String {
    response.sandbox.unwrap().metadata.unwrap().id
}

/// What was told of a creation, for the oracle.
pub(crate) fn mutation(name: &str, has_id: bool, answer: &Answer<String>) -> Mutation {
    let told = match answer {
        Ok((_, replayed)) => Told::Done { replayed: *replayed },
        Err(status) => Told::by(status),
    };
    Mutation { mark: name.to_owned(), edge: 0, has_id, sent: 1, told }
}

/// Runs all of them at the same time; what they gave, in order.
pub(crate) async fn together<T: Send + 'static>(
    calls: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let mut tasks = JoinSet::new();
    for (at, call) in calls.into_iter().enumerate() {
        tasks.spawn(async move { (at, call.await) });
    }
    let mut done = tasks.join_all().await;
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, value)| value).collect()
}
