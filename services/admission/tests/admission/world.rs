//! A deployment of this role alone. Each replica reaches broker and database through proxies of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use clap::Parser;
use prost::Message;
use prost_types::Timestamp;
use roadstead_admission::{Config, Served};
use roadstead_bus::door::{CallError, CommandClient};
use roadstead_bus::permissions::{Auth, limits_and_users};
use roadstead_bus::{Bus, ConnectSettings};
use roadstead_proto::api::datamodel::{ObjectMeta, Provider, WorkspaceSelector, workspace_selector::Selection};
use roadstead_proto::api::v1;
use roadstead_proto::internal::{
    Answer, Command, Principal, SandboxIdentity, Sealed, User, answer::Outcome, principal::Kind,
};
use roadstead_proto::method::Method;
use roadstead_proto::role::Role;
use roadstead_proto::sealing::DoorSeal;
use roadstead_proto::subject::{self, Report};
use roadstead_service_kit::keyring::Keyring;
use roadstead_service_kit::role_keys::RoleKeys;
use roadstead_service_kit::shutdown::Shutdown;
use roadstead_service_kit::status;
use roadstead_store::migrate::{RolePasswords, migrate, user};
use roadstead_testkit::sql::Session;
use roadstead_testkit::{Broker, Login, Proxy, Run, database, eventually};
use secrecy::ExposeSecret as _;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// Long enough for any condition on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

#[derive(Parser, Debug)]
struct Line {
    #[command(flatten)]
    config: Config,
}

/// A running admission and what lies between it and its servers.
pub(crate) struct Replica {
    pub(crate) nats: Proxy,
    pub(crate) postgres: Proxy,
    shutdown: Shutdown,
    task: JoinHandle<anyhow::Result<()>>,
    threads: Threads,
}

/// Threads of one replica alone: with them goes all that it does.
struct Threads(Option<Runtime>);

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// One of the two doors, with its own key and connection.
#[derive(Clone)]
pub(crate) struct DoorOf {
    pub(crate) bus: Bus,
    pub(crate) seal: Arc<DoorSeal>,
    client: CommandClient,
}

pub(crate) struct World {
    pub(crate) replicas: Vec<Replica>,
    /// Behind their proxies until the end, so that nobody gets their ports.
    dead: Vec<Replica>,
    pub(crate) edge: DoorOf,
    pub(crate) bridge: DoorOf,
    pub(crate) broker: Broker,
    pub(crate) sql: Session,
    database: database::Database,
    pub(crate) keyring: Keyring,
    served: Served,
    flags: Vec<String>,
    folder: tempfile::TempDir,
}

/// What a command came to: a response and whether it was shown again, or a status.
pub(crate) type Told = Result<(Bytes, bool), tonic::Status>;

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(1, &[]).await
    }

    pub(crate) async fn with(replicas: usize, flags: &[&str]) -> Self {
        Self::serving(Served::default(), replicas, flags).await
    }

    /// Of replicas that serve this.
    pub(crate) async fn serving(served: Served, replicas: usize, flags: &[&str]) -> Self {
        let keyring = Keyring::generate(SystemTime::now()).unwrap();
        let users = keyring.export_broker();
        let users = users.users().flat_map(|(role, keys)| keys.iter().map(move |key| (role, key.clone())));
        let broker = Broker::start(&limits_and_users(&Auth::Nkeys(users.collect()))).await;
        let database = migrated().await;
        let mut world = Self {
            replicas: Vec::new(),
            dead: Vec::new(),
            edge: DoorOf::open(&broker, &keyring, Role::Edge).await,
            bridge: DoorOf::open(&broker, &keyring, Role::SupervisorBridge).await,
            sql: database.session().await,
            broker,
            database,
            keyring,
            served,
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            folder: tempfile::tempdir().unwrap(),
        };
        for _ in 0..replicas {
            world.start_replica().await;
        }
        world.serves().await;
        world
    }

    pub(crate) async fn start_replica(&mut self) {
        let login = login(&self.database);
        let nats = Proxy::before_broker(self.broker.port()).await;
        let postgres = Proxy::before(([127, 0, 0, 1], login.port).into()).await;
        let mut arguments = vec![
            "admission".to_owned(),
            format!("--keys={}", self.keys_file().display()),
            format!("--nats-url={}", nats.nats_url()),
            format!("--database-url=postgres://{}/{}", postgres.address(), self.database.name()),
            "--admin-listen=127.0.0.1:0".to_owned(),
            "--drain-seconds=10".to_owned(),
        ];
        arguments.extend(self.flags.clone());
        let shutdown = Shutdown::new();
        let config = Line::parse_from(arguments).config;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let task = runtime.spawn(roadstead_admission::run(config, self.served.clone(), shutdown.clone()));
        self.replicas.push(Replica { nats, postgres, shutdown, task, threads: Threads(Some(runtime)) });
    }

    /// Kills all replicas: nothing more of them gets out, and nothing of them goes on.
    pub(crate) fn kill_all(&mut self) {
        for replica in self.replicas.drain(..) {
            replica.nats.cut();
            replica.postgres.cut();
        }
    }

    /// Waits until a command is answered.
    async fn serves(&self) {
        eventually(LONG, "admission serves", || async {
            let request =
                v1::StopSandboxRequest { name: "none".into(), workspace_scope: scope("none"), ..Default::default() };
            let told = self.edge.user_call(&root(), Method::StopSandbox, &request).await;
            told.is_err_and(|status| status.code() == tonic::Code::NotFound)
        })
        .await;
    }

    /// The role's own key file, with the run's password for Postgres.
    fn keys_file(&self) -> PathBuf {
        let file = self.folder.path().join(format!("{}.json", Uuid::new_v4()));
        self.keyring.export(Role::Admission).save(&file).unwrap();
        let mut keys: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        keys["postgres_password"] = Run::get().role_password().expose_secret().into();
        std::fs::write(&file, serde_json::to_vec(&keys).unwrap()).unwrap();
        file
    }

    pub(crate) fn keys(&self, role: Role) -> RoleKeys {
        self.keyring.export(role)
    }

    pub(crate) async fn session(&self) -> Session {
        self.database.session().await
    }

    pub(crate) async fn count(&mut self, of: &str) -> u64 {
        self.sql.value(&format!("select count(*) from roadstead.{of}")).await.parse().unwrap()
    }

    /// Nothing waits to be published.
    pub(crate) async fn quiet(&mut self) {
        let mut side = self.session().await;
        let side = &mut side;
        let begun = std::time::Instant::now();
        while side.value("select count(*) from roadstead.outbox").await != "0" {
            assert!(begun.elapsed() < LONG, "marks stay in the outbox");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn workspace(&self, name: &str) {
        let request = v1::CreateWorkspaceRequest { name: name.into(), ..Default::default() };
        self.edge.user_call(&root(), Method::CreateWorkspace, &request).await.unwrap();
    }

    pub(crate) async fn provider(&self, workspace: &str, name: &str) {
        let provider = Provider {
            metadata: Some(ObjectMeta { name: name.into(), ..Default::default() }),
            r#type: "generic".into(),
            credentials: [("TOKEN".to_owned(), "x".to_owned())].into(),
            ..Default::default()
        };
        let request = v1::CreateProviderRequest {
            provider: Some(provider),
            workspace_scope: scope(workspace),
            ..Default::default()
        };
        self.edge.user_call(&root(), Method::CreateProvider, &request).await.unwrap();
    }

    pub(crate) async fn sandbox(&self, workspace: &str, name: &str) -> v1::Sandbox {
        let request = create_sandbox(workspace, name, "");
        let (body, _) = self.edge.user_call(&root(), Method::CreateSandbox, &request).await.unwrap();
        v1::SandboxResponse::decode(body).unwrap().sandbox.unwrap()
    }

    /// The principal of a sandbox's supervisor with a valid token.
    pub(crate) fn supervisor(&self, sandbox_id: &str, generation: u64) -> Principal {
        let signer = self.keys(Role::Admission).token_signer().unwrap();
        let id = Uuid::try_parse(sandbox_id).unwrap();
        let minted = signer.mint(id, generation, SystemTime::now(), Duration::from_secs(900));
        let token = minted.token.expose_secret().to_owned();
        let identity = SandboxIdentity { sandbox_id: sandbox_id.to_owned(), generation, token };
        Principal { kind: Some(Kind::Sandbox(identity)) }
    }

    /// A connection with admission's rights.
    pub(crate) async fn admission_bus(&self) -> Bus {
        connect(&self.broker, &self.keyring, Role::Admission).await
    }

    /// Stops all replicas in order.
    pub(crate) async fn stop(self) {
        for replica in self.replicas {
            Self::stop_one(replica).await;
        }
    }

    /// Ends one as a machine does that loses its power: its connections break, and nothing of it is heard any more.
    pub(crate) fn kill(&mut self, at: usize) {
        let replica = self.replicas.remove(at);
        for proxy in [&replica.nats, &replica.postgres] {
            proxy.reset();
            proxy.cut();
        }
        replica.shutdown.request();
        self.dead.push(replica);
    }

    /// Stops one in order.
    pub(crate) async fn stop_one(Replica { shutdown, task, threads: _threads, .. }: Replica) {
        shutdown.request();
        tokio::time::timeout(LONG, task).await.expect("it stops in time").unwrap().unwrap();
    }
}

impl DoorOf {
    pub(crate) async fn open(broker: &Broker, keyring: &Keyring, role: Role) -> Self {
        let (keys, bus) = (keyring.export(role), connect(broker, keyring, role).await);
        let client = CommandClient::new(&bus, 1024).await.unwrap();
        Self { bus, seal: Arc::new(keys.door_seal().unwrap()), client }
    }

    pub(crate) async fn user_call(&self, user: &User, method: Method, request: &impl Message) -> Told {
        let principal = Principal { kind: Some(Kind::User(user.clone())) };
        let command = command(method.name(), principal, request, Duration::from_secs(40));
        self.call(&subject::command(method), command).await
    }

    pub(crate) async fn report(&self, principal: &Principal, report: Report, request: &impl Message) -> Told {
        let command = command(report.name(), principal.clone(), request, Duration::from_secs(40));
        self.call(&subject::report(report), command).await
    }

    /// Sends a command and waits for its answer. The same command may be sent again.
    pub(crate) async fn call(&self, subject: &str, command: Command) -> Told {
        self.call_within(subject, command, Duration::from_secs(45)).await
    }

    /// As [`DoorOf::call`], with less patience. Whose outcome is not known by then is told as `UNKNOWN`.
    pub(crate) async fn call_within(&self, subject: &str, command: Command, patience: Duration) -> Told {
        let id = Uuid::try_parse(&command.command_id).unwrap();
        let envelope: Bytes = self.seal.seal_command(id, &command.encode_to_vec()).encode_to_vec().into();
        let patience = tokio::time::Instant::now() + patience;
        let answer = self.client.call(subject, id, envelope, patience).await.map_err(|error| match error {
            CallError::Full => tonic::Status::resource_exhausted("full"),
            CallError::Unavailable => tonic::Status::unavailable("not stored"),
            CallError::OutcomeUnknown => tonic::Status::unknown("outcome unknown"),
        })?;
        let opened = self.seal.open_answer(id, &Sealed::decode(answer).unwrap()).unwrap();
        let answer = Answer::decode(opened).unwrap();
        match answer.outcome.unwrap() {
            Outcome::Response(body) => Ok((body, answer.replayed)),
            Outcome::Status(bytes) => Err(status::from_bytes(&bytes)),
        }
    }
}

/// A database of the test's own.
pub(crate) async fn migrated() -> database::Database {
    database::Database::from_template("admission", |owner| async move {
        let password = || Run::get().role_password().clone();
        let passwords = RolePasswords { admission: password(), config_snapshot: password(), watch: password() };
        migrate(&owner.url_with_password().into(), &passwords).await.unwrap();
    })
    .await
}

/// How admission reaches it.
pub(crate) fn login(database: &database::Database) -> Login {
    Run::get().login(user(Role::Admission).unwrap(), Run::get().role_password(), database.name())
}

async fn connect(broker: &Broker, keyring: &Keyring, role: Role) -> Bus {
    let bus = Bus::connect(ConnectSettings {
        url: broker.url(),
        name: format!("test {role}"),
        role,
        nkey_seed: Some(keyring.export(role).broker_seed().clone()),
        ca: None,
    })
    .await
    .unwrap();
    bus.connected().await;
    bus
}

pub(crate) fn command(method: &str, principal: Principal, request: &impl Message, time: Duration) -> Command {
    Command {
        command_id: Uuid::now_v7().to_string(),
        method: method.into(),
        principal: Some(principal),
        request: request.encode_to_vec().into(),
        deadline: Some(Timestamp::from(SystemTime::now() + time)),
        traceparent: String::new(),
    }
}

pub(crate) fn user_named(subject: &str, platform_admin: bool) -> User {
    User { provider: "local_dev".into(), subject: subject.into(), platform_admin, ..Default::default() }
}

pub(crate) fn root() -> User {
    user_named("root", true)
}

pub(crate) fn principal(user: &User) -> Principal {
    Principal { kind: Some(Kind::User(user.clone())) }
}

pub(crate) fn scope(workspace: &str) -> Option<WorkspaceSelector> {
    Some(WorkspaceSelector { selection: Some(Selection::Workspace(workspace.into())) })
}

pub(crate) fn create_sandbox(workspace: &str, name: &str, request_id: &str) -> v1::CreateSandboxRequest {
    v1::CreateSandboxRequest {
        workspace_scope: scope(workspace),
        name: name.into(),
        spec: Some(v1::SandboxSpec::default()),
        request_id: request_id.into(),
        ..Default::default()
    }
}

pub(crate) fn fresh_id() -> String {
    Uuid::new_v4().to_string()
}

/// The sandbox in a response.
pub(crate) fn sandbox_of(told: Told) -> v1::Sandbox {
    v1::SandboxResponse::decode(told.unwrap().0).unwrap().sandbox.unwrap()
}

pub(crate) fn reason(status: &tonic::Status) -> Option<&'static str> {
    status::reason_of(status).map(status::Reason::name)
}
