//! A deployment of this role alone: the test plays admission, the bridge and the edge.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use clap::Parser;
use prost::Message as _;
use roadstead_bus::bucket::{Bucket, Revision};
use roadstead_bus::permissions::{Auth, limits_and_users};
use roadstead_bus::{Bus, ConnectSettings, topology};
use roadstead_config_snapshot::Config;
use roadstead_policy::settings::POLICY_KEY;
use roadstead_proto::api::sandbox::setting_value::Value;
use roadstead_proto::api::sandbox::{
    NetworkCredentialBinding, NetworkEndpoint, NetworkPolicyRule, SandboxPolicy, SettingValue,
};
use roadstead_proto::api::v1::{self, ProviderEnvironmentSnapshot};
use roadstead_proto::bucket::Bucket as Name;
use roadstead_proto::internal::{
    Mark, Principal, ReadReply, ReadRequest, SandboxIdentity, SnapshotEntry, User, principal::Kind as PrincipalKind,
    read_reply::Outcome as Answer,
};
use roadstead_proto::role::Role;
use roadstead_proto::sealing::seal_token;
use roadstead_proto::subject::{self, ConfigCall, Dirty, Door, Kind, Lane};
use roadstead_service_kit::keyring::Keyring;
use roadstead_service_kit::role_keys::RoleKeys;
use roadstead_service_kit::shutdown::Shutdown;
use roadstead_store::migrate::{self, RolePasswords, migrate};
use roadstead_store::mutation::{Command, Conclusion, Locks, Outcome, Write};
use roadstead_store::{Database, DatabaseSettings, row};
use roadstead_testkit::sql::Session;
use roadstead_testkit::{Broker, Proxy, Run, database, eventually};
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
    replicas: Vec<(Shutdown, JoinHandle<anyhow::Result<()>>)>,
    pub(crate) admission: Bus,
    pub(crate) bridge: Bus,
    edge: Bus,
    pub(crate) broker: Broker,
    /// Between the role and Postgres.
    pub(crate) postgres: Proxy,
    database: database::Database,
    pub(crate) store: Database,
    keyring: Keyring,
    folder: tempfile::TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with_replicas(1).await
    }

    pub(crate) async fn with_replicas(count: usize) -> Self {
        let mut world = Self::bare().await;
        for _ in 0..count {
            world.start_replica(world.broker.url());
        }
        world.serves().await;
        world
    }

    /// Nobody serves yet.
    pub(crate) async fn bare() -> Self {
        let keyring = Keyring::generate(SystemTime::now()).unwrap();
        let users = keyring.export_broker();
        let users = users.users().flat_map(|(role, keys)| keys.iter().map(move |key| (role, key.clone())));
        let broker = Broker::start(&limits_and_users(&Auth::Nkeys(users.collect()))).await;
        let database = database::Database::from_template("config_snapshot", |owner| async move {
            let password = || Run::get().role_password().clone();
            let passwords = RolePasswords { admission: password(), config_snapshot: password(), watch: password() };
            migrate(&owner.url_with_password().into(), &passwords).await.unwrap();
        })
        .await;
        let folder = tempfile::tempdir().unwrap();
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
        Self {
            replicas: Vec::new(),
            bridge: connect(&broker, &keyring, Role::SupervisorBridge).await,
            edge: connect(&broker, &keyring, Role::Edge).await,
            admission,
            postgres: Proxy::before(([127, 0, 0, 1], login.port).into()).await,
            broker,
            database,
            store,
            keyring,
            folder,
        }
    }

    /// Starts a replica that reaches the broker there.
    pub(crate) fn start_replica(&mut self, nats_url: String) {
        let postgres = self.postgres.address();
        let arguments = [
            "config-snapshot".to_owned(),
            format!("--keys={}", self.keys_file().display()),
            format!("--nats-url={nats_url}"),
            format!("--database-url=postgres://{postgres}/{}", self.database.name()),
            "--admin-listen=127.0.0.1:0".to_owned(),
        ];
        let shutdown = Shutdown::new();
        let config = Line::parse_from(arguments).config;
        let task = tokio::spawn(roadstead_config_snapshot::run(config, shutdown.clone()));
        self.replicas.push((shutdown, task));
    }

    /// The role's own key file, with the run's password for Postgres.
    fn keys_file(&self) -> PathBuf {
        let file = self.folder.path().join("keys.json");
        self.keyring.export(Role::ConfigSnapshot).save(&file).unwrap();
        let mut keys: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        keys["postgres_password"] = Run::get().role_password().expose_secret().into();
        std::fs::write(&file, serde_json::to_vec(&keys).unwrap()).unwrap();
        file
    }

    /// Waits until somebody answers.
    pub(crate) async fn serves(&self) {
        eventually(LONG, "the role serves", || async {
            let asked = self.user_asks(&admin(), "no-such-workspace", "box").await;
            matches!(asked, Ok(Answer::Status(_)))
        })
        .await;
    }

    /// Stops the role in order.
    pub(crate) async fn stop(self) {
        for (shutdown, task) in self.replicas {
            shutdown.request();
            tokio::time::timeout(LONG, task).await.expect("it stops in time").unwrap().unwrap();
        }
    }

    pub(crate) fn keys(&self, role: Role) -> RoleKeys {
        self.keyring.export(role)
    }

    pub(crate) async fn sql(&self) -> Session {
        self.database.session().await
    }

    /// Writes and publishes the marks, as admission does.
    pub(crate) async fn write(&self, writes: Vec<Write>) {
        for row in self.write_silently(writes).await {
            self.publish(&row).await;
        }
    }

    /// Writes; nobody is told.
    pub(crate) async fn write_silently(&self, writes: Vec<Write>) -> Vec<row::OutboxRow> {
        let command = Command {
            id: Uuid::now_v7(),
            method: "CreateSandbox",
            caller: [7; 32],
            deadline: SystemTime::now() + Duration::from_secs(60),
            traceparent: String::new(),
            claim: None,
        };
        let outcome = Outcome::Response { body: Bytes::new(), replayed: false };
        let in_flight = self.store.first_flight(&command, &Locks::default()).await.unwrap();
        in_flight.conclude(Conclusion::Effect { writes, outcome, receipt: Bytes::new() }).await.unwrap().outbox
    }

    async fn publish(&self, row: &row::OutboxRow) {
        let payload = Bytes::from(Mark { transaction: 0, traceparent: row.traceparent.clone() }.encode_to_vec());
        if row.mark.kind == Kind::Sandbox && row.configuration {
            self.mark(row.mark.workspace_id, row.mark.object_id).await;
        }
        self.admission.enqueue(row.mark.to_string(), payload, None).await.unwrap();
    }

    pub(crate) async fn mark(&self, workspace_id: Uuid, sandbox_id: Uuid) {
        self.mark_in(Lane::One, workspace_id, sandbox_id).await;
    }

    pub(crate) async fn mark_in(&self, lane: Lane, workspace_id: Uuid, sandbox_id: Uuid) {
        let dirty = Dirty { lane, workspace_id, sandbox_id };
        self.admission.enqueue(dirty.to_string(), Bytes::new(), None).await.unwrap();
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

    /// A provider with one credential, `<NAME>_TOKEN`, and one open value, `<NAME>_URL`.
    pub(crate) async fn provider(&self, workspace: &row::Workspace, name: &str, secret: &str) -> row::Provider {
        let id = Uuid::new_v4();
        let provider = row::Provider {
            id,
            workspace_id: workspace.id,
            name: name.into(),
            kind: "generic".into(),
            profile_workspace: String::new(),
            config: [(format!("{}_URL", name.to_uppercase()), format!("https://{name}.example.com"))].into(),
            credentials: vec![self.credential(id, &format!("{}_TOKEN", name.to_uppercase()), secret)],
            labels: row::Pairs::new(),
            annotations: row::Pairs::new(),
            resource_version: 1,
            created_at: now(),
        };
        self.write(vec![Write::InsertProvider(provider.clone())]).await;
        provider
    }

    /// As admission seals it.
    pub(crate) fn credential(&self, provider_id: Uuid, key: &str, secret: &str) -> row::Credential {
        let cipher = self.keys(Role::Admission).credentials().unwrap();
        let sealed_value = cipher.encrypt(provider_id.as_bytes(), secret.as_bytes()).into();
        row::Credential { key: key.into(), sealed_value, expires_at: None }
    }

    pub(crate) async fn sandbox(
        &self,
        workspace: &row::Workspace,
        name: &str,
        providers: &[&row::Provider],
    ) -> row::Sandbox {
        self.sandbox_of(workspace, name, v1::SandboxSpec::default(), providers).await
    }

    pub(crate) async fn sandbox_of(
        &self,
        workspace: &row::Workspace,
        name: &str,
        spec: v1::SandboxSpec,
        providers: &[&row::Provider],
    ) -> row::Sandbox {
        let sandbox = row::Sandbox {
            id: Uuid::new_v4(),
            workspace_id: workspace.id,
            workspace_name: workspace.name.clone(),
            name: name.into(),
            labels: row::Pairs::new(),
            annotations: row::Pairs::new(),
            resource_version: 1,
            created_at: now(),
            deletion_at: None,
            spec,
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
        };
        let attach = |provider: &&row::Provider| Write::Attach { sandbox_id: sandbox.id, provider_id: provider.id };
        let writes = std::iter::once(Write::InsertSandbox(sandbox.clone())).chain(providers.iter().map(attach));
        self.write(writes.collect()).await;
        sandbox
    }

    pub(crate) async fn policy(&self, scope: Option<Uuid>, version: u32, policy: SandboxPolicy) {
        let revision = row::PolicyRevision {
            scope,
            version,
            hash: roadstead_policy::canonical::hash(&policy),
            policy,
            status: v1::PolicyStatus::Pending,
            load_error: String::new(),
            created_at: now(),
            loaded_at: None,
            provenance: row::Pairs::new(),
        };
        let mut writes = vec![Write::InsertPolicyRevision(revision)];
        if scope.is_none() {
            writes.push(Write::PutSetting { scope, key: POLICY_KEY.into(), value: SettingValue::default() });
        }
        self.write(writes).await;
    }

    pub(crate) async fn global_setting(&self, key: &str, on: bool) {
        let value = SettingValue { value: Some(Value::BoolValue(on)) };
        self.write(vec![Write::PutSetting { scope: None, key: key.into(), value }]).await;
    }

    /// The entry that stands, as a bridge reads it.
    pub(crate) async fn entry(&self, sandbox_id: Uuid) -> Option<(SnapshotEntry, Revision)> {
        let entry = Bucket::new(&self.bridge, Name::Snapshots).read_from_leader(&sandbox_id.to_string()).await.ok()?;
        let value = SnapshotEntry::decode(entry.value?).unwrap();
        Some((value, entry.revision))
    }

    /// Waits for an entry of which `wanted` is true.
    pub(crate) async fn entry_where(
        &self,
        sandbox_id: Uuid,
        what: &str,
        wanted: impl Fn(&SnapshotEntry) -> bool,
    ) -> (SnapshotEntry, Revision) {
        eventually(LONG, what, || async { self.entry(sandbox_id).await.filter(|(entry, _)| wanted(entry)) }).await
    }

    /// Waits until all marks are worked off.
    pub(crate) async fn idle(&self) {
        eventually(LONG, "all marks are worked off", || async {
            let expansion = self.told("CONSUMER.INFO.CHANGES.config-snapshot-expansion").await;
            let waiting = expansion["num_pending"].as_u64()? + expansion["num_ack_pending"].as_u64()?;
            let dirty = self.told("STREAM.INFO.DIRTY").await["state"]["messages"].as_u64()?;
            (waiting + dirty == 0).then_some(())
        })
        .await;
    }

    pub(crate) async fn told(&self, call: &str) -> serde_json::Value {
        let reply = self.admission.request(format!("$JS.API.{call}"), Bytes::new(), LONG).await;
        reply.ok().and_then(|reply| serde_json::from_slice(&reply).ok()).unwrap_or_default()
    }

    /// What a bridge makes of an entry.
    pub(crate) fn environment(&self, sandbox_id: Uuid, entry: &SnapshotEntry) -> ProviderEnvironmentSnapshot {
        let cipher = self.keys(Role::SupervisorBridge).snapshots().unwrap();
        let plaintext = cipher.decrypt(sandbox_id.as_bytes(), &entry.environment).unwrap();
        ProviderEnvironmentSnapshot::decode(plaintext.as_slice()).unwrap()
    }

    /// Asks for a configuration through the edge.
    pub(crate) async fn user_asks(
        &self,
        user: &User,
        workspace: &str,
        name: &str,
    ) -> Result<Answer, roadstead_bus::RequestError> {
        use roadstead_proto::api::datamodel::{WorkspaceSelector, workspace_selector::Selection};
        let selection = Some(Selection::Workspace(workspace.into()));
        let request = roadstead_proto::api::sandbox::GetSandboxConfigRequest {
            name: name.into(),
            workspace_scope: Some(WorkspaceSelector { selection }),
        };
        let principal = PrincipalKind::User(user.clone());
        ask(&self.edge, Door::User, ConfigCall::GetSandboxConfig, principal, &request).await
    }

    /// Asks for the status of a provider in the workspace `w` through the edge.
    pub(crate) async fn provider_status(&self, user: &User, sandbox: &str, provider: &str, receipt: &str) -> Answer {
        use roadstead_proto::api::datamodel::{WorkspaceSelector, workspace_selector::Selection};
        let request = v1::GetSandboxProviderStatusRequest {
            workspace_scope: Some(WorkspaceSelector { selection: Some(Selection::Workspace("w".into())) }),
            sandbox: sandbox.into(),
            provider: provider.into(),
            receipt_id: receipt.into(),
        };
        let principal = PrincipalKind::User(user.clone());
        ask(&self.edge, Door::User, ConfigCall::GetSandboxProviderStatus, principal, &request).await.unwrap()
    }

    /// Asks as a sandbox through the bridge.
    pub(crate) async fn sandbox_asks(
        &self,
        sandbox: &row::Sandbox,
        call: ConfigCall,
        request: &impl prost::Message,
    ) -> Answer {
        let signer = self.keys(Role::Admission).token_signer().unwrap();
        let minted = signer.mint(sandbox.id, sandbox.generation, SystemTime::now(), Duration::from_secs(900));
        let identity = SandboxIdentity {
            sandbox_id: sandbox.id.to_string(),
            generation: sandbox.generation,
            token: seal_token(&self.keys(Role::SupervisorBridge).snapshots().unwrap(), minted.token.expose_secret()),
        };
        ask(&self.bridge, Door::Sandbox, call, PrincipalKind::Sandbox(identity), request).await.unwrap()
    }

    pub(crate) async fn bootstrap(&self, sandbox: &row::Sandbox) -> Answer {
        let request = roadstead_proto::internal::BootstrapRequest { sandbox_id: sandbox.id.to_string() };
        self.sandbox_asks(sandbox, ConfigCall::Bootstrap, &request).await
    }
}

async fn connect(broker: &Broker, keyring: &Keyring, role: Role) -> Bus {
    let bus = Bus::connect(ConnectSettings {
        url: broker.url(),
        name: role.name().into(),
        role,
        nkey_seed: Some(keyring.export(role).broker_seed().clone()),
        ca: None,
    })
    .await
    .unwrap();
    tokio::time::timeout(LONG, bus.connected()).await.unwrap();
    bus
}

async fn ask(
    bus: &Bus,
    door: Door,
    call: ConfigCall,
    principal: PrincipalKind,
    request: &impl prost::Message,
) -> Result<Answer, roadstead_bus::RequestError> {
    let request = ReadRequest {
        principal: Some(Principal { kind: Some(principal) }),
        request: request.encode_to_vec().into(),
        deadline: Some((SystemTime::now() + LONG).into()),
        traceparent: String::new(),
    };
    let reply = bus.request(subject::config(door, call), request.encode_to_vec().into(), LONG).await?;
    Ok(ReadReply::decode(reply).unwrap().outcome.unwrap())
}

pub(crate) fn admin() -> User {
    User { subject: "root".into(), platform_admin: true, ..User::default() }
}

pub(crate) fn user(subject: &str) -> User {
    User { subject: subject.into(), ..User::default() }
}

/// A policy that binds the credentials of these providers.
pub(crate) fn binding(providers: &[&row::Provider]) -> SandboxPolicy {
    let endpoint = |provider: &&row::Provider| NetworkEndpoint {
        host: format!("{}.example.com", provider.name),
        port: 443,
        protocol: "rest".into(),
        credential_binding: Some(NetworkCredentialBinding { provider: provider.name.clone() }),
        ..Default::default()
    };
    let rule = NetworkPolicyRule { endpoints: providers.iter().map(endpoint).collect(), ..Default::default() };
    SandboxPolicy { version: 1, network_policies: [("web".to_owned(), rule)].into(), ..Default::default() }
}

pub(crate) fn now() -> SystemTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    SystemTime::UNIX_EPOCH + Duration::from_millis(since.as_millis().try_into().unwrap())
}

/// The code of a refusal.
pub(crate) fn code(answer: Answer) -> tonic::Code {
    let Answer::Status(bytes) = answer else { panic!("not refused") };
    roadstead_service_kit::status::from_bytes(&bytes).code()
}

pub(crate) fn response(answer: Answer) -> Bytes {
    match answer {
        Answer::Response(response) => response,
        Answer::Status(bytes) => panic!("{:?}", roadstead_service_kit::status::from_bytes(&bytes)),
        Answer::SecretResponse(_) => panic!("a secret answer"),
    }
}
