//! A migrated database for one test, and the objects that tests put into it.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use roadstead_proto::api::{sandbox, v1};
use roadstead_proto::role::Role;
use roadstead_store::migrate::{self, RolePasswords, migrate};
use roadstead_store::mutation::{ByName, Claim, Command, Conclusion, Lock, Locks, Outcome, Sandboxes, Write};
use roadstead_store::{Committed, Database, DatabaseSettings, FlightError, InFlight, row};
use roadstead_testkit::sql::Session;
use roadstead_testkit::{Login, Run, database};
use uuid::Uuid;

pub(crate) const CALLER: [u8; 32] = [7; 32];

pub(crate) struct World {
    pub(crate) postgres: roadstead_testkit::Database,
    /// As the admission role.
    pub(crate) store: Database,
    /// As the superuser.
    pub(crate) sql: Session,
}

/// The run's: roles are shared with the systems of other tests, which must still be let in.
pub(crate) fn passwords() -> RolePasswords {
    let password = || Run::get().role_password().clone();
    RolePasswords { admission: password(), config_snapshot: password(), watch: password() }
}

pub(crate) async fn migrated() -> roadstead_testkit::Database {
    database::Database::from_template("store", |owner| async move {
        migrate(&owner.url_with_password().into(), &passwords()).await.unwrap();
    })
    .await
}

pub(crate) fn login(postgres: &roadstead_testkit::Database, role: Role) -> Login {
    let user = migrate::user(role).unwrap();
    Run::get().login(user, Run::get().role_password(), postgres.name())
}

pub(crate) fn settings(login: &Login, role: Role) -> DatabaseSettings {
    DatabaseSettings {
        url: login.url(),
        user: login.user.clone(),
        password: login.password.clone(),
        pool_size: 16,
        role,
        process_id: Uuid::now_v7(),
        quota: 1000,
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(|_| ()).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut DatabaseSettings)) -> Self {
        let postgres = migrated().await;
        let mut settings = settings(&login(&postgres, Role::Admission), Role::Admission);
        change(&mut settings);
        let store = Database::connect(settings).unwrap();
        let sql = postgres.session().await;
        Self { postgres, store, sql }
    }

    /// The same database as another role.
    pub(crate) fn role(&self, role: Role) -> Database {
        Database::connect(settings(&login(&self.postgres, role), role)).unwrap()
    }

    pub(crate) async fn first(&self, command: &Command, locks: &Locks) -> Result<InFlight, FlightError> {
        self.store.first_flight(command, locks).await
    }

    /// Writes in a command of their own; returns its marks.
    pub(crate) async fn write(&self, writes: Vec<Write>) -> Vec<row::OutboxRow> {
        self.try_write(writes).await.unwrap().outbox
    }

    pub(crate) async fn try_write(&self, writes: Vec<Write>) -> Result<Committed, FlightError> {
        self.first(&command(), &Locks::default()).await?.conclude(effect(writes)).await
    }

    pub(crate) async fn workspace(&self, name: &str) -> row::Workspace {
        let row = workspace(name);
        self.write(vec![Write::InsertWorkspace(row.clone())]).await;
        row
    }

    pub(crate) async fn sandbox(&self, workspace: &row::Workspace, name: &str) -> row::Sandbox {
        let row = sandbox(workspace, name);
        self.write(vec![Write::InsertSandbox(row.clone())]).await;
        row
    }

    pub(crate) async fn provider(&self, workspace: &row::Workspace, name: &str) -> row::Provider {
        let row = provider(workspace, name);
        self.write(vec![Write::InsertProvider(row.clone())]).await;
        row
    }

    pub(crate) async fn member(
        &self,
        workspace: &row::Workspace,
        subject: &str,
        role: v1::WorkspaceRole,
    ) -> row::Member {
        let row = member(workspace, subject, role);
        self.write(vec![Write::InsertMember(row.clone())]).await;
        row
    }

    /// The sandbox as the first flight finds it.
    pub(crate) async fn load(&self, id: Uuid) -> Option<row::Sandbox> {
        let in_flight = self.first(&command(), &by_id(id)).await.unwrap();
        let found = in_flight.loaded().sandboxes.first().cloned();
        in_flight.abandon().await;
        found
    }
}

pub(crate) fn command() -> Command {
    Command {
        id: Uuid::now_v7(),
        method: "CreateSandbox",
        caller: CALLER,
        deadline: SystemTime::now() + Duration::from_secs(60),
        traceparent: String::new(),
        claim: None,
    }
}

pub(crate) fn claimed(scope: &str, request_id: Uuid) -> Command {
    let claim = Claim { request_id, scope: scope.into(), protected: true, key_id: "k1".into(), fingerprint: [9; 32] };
    Command { claim: Some(claim), ..command() }
}

pub(crate) fn response(text: &'static str) -> Outcome {
    Outcome::Response { body: Bytes::from_static(text.as_bytes()), replayed: false }
}

pub(crate) fn effect(writes: Vec<Write>) -> Conclusion {
    Conclusion::Effect { writes, outcome: response("done"), receipt: Bytes::from_static(b"receipt") }
}

pub(crate) fn refusal() -> Conclusion {
    Conclusion::Refusal(Bytes::from_static(b"no"))
}

pub(crate) fn in_workspace(name: &str, lock: Lock) -> Locks {
    Locks { workspace: Some(ByName { name: name.into(), lock }), ..Locks::default() }
}

pub(crate) fn by_name(workspace: &str, sandbox: &str) -> Locks {
    Locks { sandboxes: Sandboxes::Named(sandbox.into()), ..in_workspace(workspace, Lock::Share) }
}

pub(crate) fn by_id(id: Uuid) -> Locks {
    Locks { sandboxes: Sandboxes::ById(id), ..Locks::default() }
}

/// Now, in the resolution of the database's rows.
pub(crate) fn now() -> SystemTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    SystemTime::UNIX_EPOCH + Duration::from_millis(since.as_millis().try_into().unwrap())
}

pub(crate) fn pairs(pairs: &[(&str, &str)]) -> row::Pairs {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

pub(crate) fn workspace(name: &str) -> row::Workspace {
    row::Workspace {
        id: Uuid::new_v4(),
        name: name.into(),
        labels: pairs(&[("team", "a")]),
        resource_version: 1,
        created_at: now(),
        terminating_since: None,
    }
}

pub(crate) fn member(workspace: &row::Workspace, subject: &str, role: v1::WorkspaceRole) -> row::Member {
    row::Member {
        id: Uuid::new_v4(),
        workspace_id: workspace.id,
        subject: subject.into(),
        role,
        resource_version: 1,
        created_at: now(),
    }
}

pub(crate) fn provider(workspace: &row::Workspace, name: &str) -> row::Provider {
    let credential = |key: &str, expires_at| row::Credential {
        key: key.into(),
        sealed_value: Bytes::from(format!("sealed {name} {key}")),
        expires_at,
    };
    row::Provider {
        id: Uuid::new_v4(),
        workspace_id: workspace.id,
        name: name.into(),
        kind: "generic".into(),
        profile_workspace: String::new(),
        config: pairs(&[("region", "a \0 and \u{1F600}")]),
        credentials: vec![credential("A", None), credential("B", Some(now()))],
        labels: pairs(&[("tier", "gold")]),
        annotations: pairs(&[("note", "x\0y")]),
        resource_version: 1,
        created_at: now(),
    }
}

pub(crate) fn sandbox(workspace: &row::Workspace, name: &str) -> row::Sandbox {
    row::Sandbox {
        id: Uuid::new_v4(),
        workspace_id: workspace.id,
        workspace_name: workspace.name.clone(),
        name: name.into(),
        labels: pairs(&[("app", name)]),
        annotations: pairs(&[("note", "n")]),
        resource_version: 1,
        created_at: now(),
        deletion_at: None,
        spec: v1::SandboxSpec { log_level: "debug".into(), ..Default::default() },
        created_from: None,
        status: v1::SandboxStatus { agent_pod: "pod".into(), ..Default::default() },
        phase: v1::SandboxPhase::Provisioning,
        current_policy_version: 0,
        attachment_epoch: Uuid::new_v4(),
        generation: 1,
        deadline: Some(now() + Duration::from_secs(300)),
        refused_content: String::new(),
        configuration_instance_id: String::new(),
        session: None,
        providers: Vec::new(),
    }
}

pub(crate) fn template(workspace: &row::Workspace, name: &str) -> row::WorkloadTemplate {
    row::WorkloadTemplate {
        id: Uuid::new_v4(),
        workspace_id: workspace.id,
        workspace_name: workspace.name.clone(),
        name: name.into(),
        labels: pairs(&[("tier", "gold")]),
        annotations: pairs(&[("note", "x\0y")]),
        resource_version: 1,
        created_at: now(),
        spec: v1::SandboxWorkloadTemplateSpec { workload: Some(Default::default()), ..Default::default() },
    }
}

pub(crate) fn service(sandbox: &row::Sandbox, name: &str) -> row::ServiceEndpoint {
    row::ServiceEndpoint {
        id: Uuid::new_v4(),
        sandbox_id: sandbox.id,
        workspace_name: sandbox.workspace_name.clone(),
        sandbox_name: sandbox.name.clone(),
        service: name.into(),
        target_port: u16::MAX,
        authorization_mode: v1::ServiceAuthorizationMode::Strip,
        resource_version: 1,
        created_at: now(),
    }
}

/// The sandbox at its next version, with something changed.
pub(crate) fn next(row: &row::Sandbox, change: impl FnOnce(&mut row::Sandbox)) -> row::Sandbox {
    let mut next = row::Sandbox { resource_version: row.resource_version + 1, ..row.clone() };
    change(&mut next);
    next
}

pub(crate) fn session(bridge_id: Uuid) -> row::Session {
    row::Session {
        id: Uuid::new_v4(),
        bridge_id,
        instance_id: "instance".into(),
        connection_epoch: u64::MAX,
        config_push: true,
        result_number: 0,
        end_number: 0,
    }
}

pub(crate) fn policy(scope: Option<Uuid>, version: u32) -> row::PolicyRevision {
    row::PolicyRevision {
        scope,
        version,
        hash: format!("hash {version}"),
        policy: sandbox::SandboxPolicy { version: 1, ..Default::default() },
        status: v1::PolicyStatus::Pending,
        load_error: String::new(),
        created_at: now(),
        loaded_at: None,
        provenance: pairs(&[("by", "test")]),
    }
}

pub(crate) fn setting(text: &str) -> sandbox::SettingValue {
    sandbox::SettingValue { value: Some(sandbox::setting_value::Value::StringValue(text.into())) }
}

/// Marks by object, with how many there were and whether any was about configuration.
pub(crate) fn summary(marks: &[row::OutboxRow]) -> HashMap<(&'static str, Uuid), (usize, bool)> {
    let mut summary = HashMap::new();
    for row in marks {
        let entry = summary.entry((row.mark.kind.name(), row.mark.object_id)).or_insert((0, false));
        *entry = (entry.0 + 1, entry.1 || row.configuration);
    }
    summary
}
