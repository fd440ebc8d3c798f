//! A deployment of this role alone: the test plays admission and the edge.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use clap::Parser;
use prost::Message;
use roadstead_bus::bucket::Bucket;
use roadstead_bus::permissions::{Auth, limits_and_users};
use roadstead_bus::{Bus, ConnectSettings, topology};
use roadstead_proto::api::v1;
use roadstead_proto::bucket::{Bucket as Name, SandboxKey};
use roadstead_proto::internal::{Principal, ReadReply, ReadRequest, SandboxEntry, User, principal, read_reply};
use roadstead_proto::method::Method;
use roadstead_proto::role::Role;
use roadstead_proto::subject::{self, Changed};
use roadstead_service_kit::keyring::Keyring;
use roadstead_service_kit::shutdown::Shutdown;
use roadstead_service_kit::status;
use roadstead_store::migrate::{self, RolePasswords, migrate};
use roadstead_store::mutation::{Command, Conclusion, Locks, Outcome, Write};
use roadstead_store::{Database, DatabaseSettings, row};
use roadstead_testkit::sql::Session;
use roadstead_testkit::{Broker, Run, database, eventually};
use roadstead_watch::Config;
use secrecy::ExposeSecret as _;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// Long enough for any condition on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);

#[derive(Parser, Debug)]
struct Line {
    #[command(flatten)]
    config: Config,
}

pub(crate) struct World {
    shutdown: Shutdown,
    role: JoinHandle<anyhow::Result<()>>,
    admission: Bus,
    pub(crate) edge: Bus,
    pub(crate) broker: Broker,
    database: database::Database,
    store: Database,
    _folder: tempfile::TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        let keyring = Keyring::generate(SystemTime::now()).unwrap();
        let users = keyring.export_broker();
        let users = users.users().flat_map(|(role, keys)| keys.iter().map(move |key| (role, key.clone())));
        let broker = Broker::start(&limits_and_users(&Auth::Nkeys(users.collect()))).await;
        let database = database::Database::from_template("watch", |owner| async move {
            let password = || Run::get().role_password().clone();
            let passwords = RolePasswords { admission: password(), config_snapshot: password(), watch: password() };
            migrate(&owner.url_with_password().into(), &passwords).await.unwrap();
        })
        .await;
        let admission = connect(&broker, &keyring, Role::Admission).await;
        topology::ensure(&admission, 1).await.unwrap();
        let login =
            Run::get().login(migrate::user(Role::Admission).unwrap(), Run::get().role_password(), database.name());
        let store = Database::connect(DatabaseSettings {
            url: login.url(),
            user: login.user.clone(),
            password: login.password.clone(),
            pool_size: 4,
            role: Role::Admission,
            process_id: Uuid::now_v7(),
            quota: 1000,
        })
        .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let keys = folder.path().join("keys.json");
        keyring.export(Role::Watch).save(&keys).unwrap();
        // The roles of a run share its passwords.
        let mut edited: serde_json::Value = serde_json::from_slice(&std::fs::read(&keys).unwrap()).unwrap();
        edited["postgres_password"] = Run::get().role_password().expose_secret().into();
        std::fs::write(&keys, serde_json::to_vec(&edited).unwrap()).unwrap();
        let shutdown = Shutdown::new();
        let config = Line::parse_from([
            "watch".to_owned(),
            format!("--keys={}", keys.display()),
            format!("--nats-url={}", broker.url()),
            format!("--database-url={}", login.url()),
            "--admin-listen=127.0.0.1:0".to_owned(),
            "--service-domain=apps.example.com".to_owned(),
        ]);
        let role = tokio::spawn(roadstead_watch::run(config.config, shutdown.clone()));
        let edge = connect(&broker, &keyring, Role::Edge).await;
        let world = Self { shutdown, role, admission, edge, broker, database, store, _folder: folder };
        eventually(LONG, "the role answers", || async {
            world.ask::<_, v1::GetWorkspaceResponse>(Method::GetWorkspace, admin(), named("default")).await.is_ok()
        })
        .await;
        world
    }

    /// Stops the role in order.
    pub(crate) async fn stop(self) {
        self.shutdown.request();
        tokio::time::timeout(LONG, self.role).await.expect("it stops in time").unwrap().unwrap();
    }

    /// Asks as an edge does.
    pub(crate) async fn ask<Q: Message, A: Message + Default>(
        &self,
        method: Method,
        user: User,
        request: Q,
    ) -> Result<A, tonic::Status> {
        let kind = Some(principal::Kind::User(user));
        let request = ReadRequest {
            principal: Some(Principal { kind }),
            request: request.encode_to_vec().into(),
            deadline: Some((SystemTime::now() + LONG).into()),
            ..ReadRequest::default()
        };
        let reply = self.edge.request(subject::read(method), request.encode_to_vec().into(), LONG).await;
        let reply = reply.map_err(|error| tonic::Status::unavailable(error.to_string()))?;
        match ReadReply::decode(reply).unwrap().outcome.unwrap() {
            read_reply::Outcome::Response(response) => Ok(A::decode(response).unwrap()),
            read_reply::Outcome::Status(bytes) => Err(status::from_bytes(&bytes)),
            read_reply::Outcome::SecretResponse(_) => panic!("a read holds no secret"),
        }
    }

    pub(crate) async fn sql(&self) -> Session {
        self.database.session().await
    }

    /// Writes and publishes the marks, as admission does.
    pub(crate) async fn write(&self, writes: Vec<Write>) {
        for row in self.write_silently(writes).await {
            self.mark(row.mark).await;
        }
    }

    /// Says that an object changed.
    pub(crate) async fn mark(&self, changed: Changed) {
        self.admission.enqueue(changed.to_string(), Bytes::new(), None).await.unwrap();
    }

    /// Writes; nobody is told.
    pub(crate) async fn write_silently(&self, writes: Vec<Write>) -> Vec<row::OutboxRow> {
        let command = Command {
            id: Uuid::now_v7(),
            method: "CreateSandbox",
            caller: [7; 32],
            deadline: SystemTime::now() + LONG,
            traceparent: String::new(),
            claim: None,
        };
        let outcome = Outcome::Response { body: Bytes::new(), replayed: false };
        let in_flight = self.store.first_flight(&command, &Locks::default()).await.unwrap();
        in_flight.conclude(Conclusion::Effect { writes, outcome, receipt: Bytes::new() }).await.unwrap().outbox
    }

    pub(crate) async fn workspace(&self, name: &str) -> row::Workspace {
        let workspace = row::Workspace {
            id: Uuid::new_v4(),
            name: name.into(),
            labels: row::Pairs::new(),
            resource_version: 1,
            created_at: now(),
            terminating_since: None,
        };
        self.write(vec![Write::InsertWorkspace(workspace.clone())]).await;
        workspace
    }

    pub(crate) async fn member(&self, workspace: &row::Workspace, subject: &str) {
        let member = row::Member {
            id: Uuid::new_v4(),
            workspace_id: workspace.id,
            subject: subject.into(),
            role: v1::WorkspaceRole::User,
            resource_version: 1,
            created_at: now(),
        };
        self.write(vec![Write::InsertMember(member)]).await;
    }

    /// The entry that stands, as an edge reads it.
    pub(crate) async fn entry(&self, of: &row::Sandbox) -> Option<SandboxEntry> {
        let key = SandboxKey::Sandbox { workspace_id: of.workspace_id, sandbox_id: of.id }.to_string();
        let entry = Bucket::new(&self.edge, Name::Sandboxes).read_from_leader(&key).await.ok()?;
        Some(SandboxEntry::decode(entry.value?).unwrap())
    }

    /// Waits for an entry of which `wanted` is true.
    pub(crate) async fn entry_where(&self, of: &row::Sandbox, what: &str, wanted: impl Fn(&SandboxEntry) -> bool) {
        eventually(LONG, what, || async { self.entry(of).await.is_some_and(|entry| wanted(&entry)) }).await;
    }

    /// Makes streams and buckets, as admission does after a loss.
    pub(crate) async fn make_topology(&self) {
        eventually(LONG, "the topology is there", || topology::ensure(&self.admission, 1)).await;
    }
}

pub(crate) fn sandbox(workspace: &row::Workspace, name: &str, labels: &[(&str, &str)]) -> row::Sandbox {
    row::Sandbox {
        id: Uuid::new_v4(),
        workspace_id: workspace.id,
        workspace_name: workspace.name.clone(),
        name: name.into(),
        labels: labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
        annotations: row::Pairs::new(),
        resource_version: 1,
        created_at: now(),
        deletion_at: None,
        spec: v1::SandboxSpec::default(),
        created_from: None,
        status: v1::SandboxStatus::default(),
        phase: v1::SandboxPhase::Provisioning,
        current_policy_version: 0,
        attachment_epoch: Uuid::new_v4(),
        generation: 1,
        deadline: None,
        refused_content: String::new(),
        configuration_instance_id: String::new(),
        session: None,
        providers: Vec::new(),
    }
}

pub(crate) fn admin() -> User {
    User { platform_admin: true, ..user("root") }
}

pub(crate) fn user(subject: &str) -> User {
    User { provider: "oidc".into(), subject: subject.into(), ..User::default() }
}

fn named(name: &str) -> v1::GetWorkspaceRequest {
    v1::GetWorkspaceRequest { name: name.into() }
}

/// In the resolution in which objects are created.
pub(crate) fn now() -> SystemTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(since.as_millis()).unwrap())
}

async fn connect(broker: &Broker, keyring: &Keyring, role: Role) -> Bus {
    let bus = Bus::connect(ConnectSettings {
        url: broker.url(),
        name: format!("test as {role}"),
        role,
        nkey_seed: Some(keyring.export(role).broker_seed().clone()),
        ca: None,
    })
    .await
    .unwrap();
    bus.connected().await;
    bus
}
