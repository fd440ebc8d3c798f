//! The watch role, played by the test: what Postgres would say is what the test last said.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use roadstead_bus::Bus;
use roadstead_bus::bucket::Bucket;
use roadstead_bus::service::{self, Endpoint};
use roadstead_proto::api::datamodel::ObjectMeta;
use roadstead_proto::api::v1::{
    GetSandboxRequest, Sandbox, SandboxPhase, SandboxResponse, SandboxStatus, WorkspaceRole,
};
use roadstead_proto::bucket::{Bucket as Name, RightsKey, SandboxKey};
use roadstead_proto::internal::principal::Kind;
use roadstead_proto::internal::read_reply::Outcome;
use roadstead_proto::internal::{
    ReadReply, ReadRequest, RightsEntry, SandboxEntriesReply, SandboxEntriesRequest, SandboxEntry,
};
use roadstead_proto::method::Method;
use roadstead_proto::subject;
use roadstead_service_kit::status;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

pub(crate) const WORKSPACE: Uuid = Uuid::from_u128(0xA);
const BEAT: Duration = Duration::from_millis(200);

pub(crate) struct WatchRole {
    bus: Bus,
    state: Arc<Mutex<State>>,
    beats: Mutex<Option<DropGuard>>,
    _serving: DropGuard,
}

#[derive(Default)]
struct State {
    sandboxes: BTreeMap<Uuid, Sandbox>,
    members: BTreeSet<String>,
    entries_read: usize,
}

impl WatchRole {
    pub(crate) async fn start(bus: Bus) -> Self {
        let state: Arc<Mutex<State>> = Arc::default();
        let answering = |answer: fn(&mut State, Bytes) -> Result<Vec<u8>, tonic::Status>| {
            let state = Arc::clone(&state);
            move |request: Bytes| {
                let outcome = match answer(&mut state.lock().unwrap(), request) {
                    Ok(response) => Outcome::Response(response.into()),
                    Err(status) => Outcome::Status(status::to_bytes(&status).into()),
                };
                std::future::ready(Bytes::from(ReadReply { outcome: Some(outcome) }.encode_to_vec()))
            }
        };
        let endpoints = vec![
            Endpoint::new(subject::read(Method::GetSandbox), answering(get_sandbox)),
            Endpoint::new(subject::READ_SANDBOX_ENTRIES, answering(entries)),
        ];
        let stop = CancellationToken::new();
        let serving = stop.clone().drop_guard();
        let serves = bus.clone();
        tokio::spawn(async move { service::serve(&serves, "roadstead-watch", endpoints, 8, stop).await });
        let role = Self { bus, state, beats: Mutex::default(), _serving: serving };
        role.beat();
        role
    }

    /// Beats until [`WatchRole::hush`].
    pub(crate) fn beat(&self) {
        let (stop, bus, replica) = (CancellationToken::new(), self.bus.clone(), Uuid::new_v4());
        *self.beats.lock().unwrap() = Some(stop.clone().drop_guard());
        let beating = async move {
            loop {
                for (name, key) in [
                    (Name::Sandboxes, SandboxKey::Beat(replica).to_string()),
                    (Name::Rights, RightsKey::Beat(replica).to_string()),
                ] {
                    let bucket = Bucket::new(&bus, name);
                    if bucket.put_with_ttl(&key, "beat".into(), Duration::from_secs(10)).await.is_err() {
                        tracing::debug!("a beat was lost");
                    }
                }
                tokio::time::sleep(BEAT).await;
            }
        };
        tokio::spawn(async move { stop.run_until_cancelled(beating).await });
    }

    /// Stops beating.
    pub(crate) fn hush(&self) {
        self.beats.lock().unwrap().take();
    }

    /// How many questions for entries were answered.
    pub(crate) fn entries_read(&self) -> usize {
        self.state.lock().unwrap().entries_read
    }

    /// Changes a sandbox in what stands for Postgres, and tells nobody.
    pub(crate) fn change(&self, id: Uuid, name: &str, version: u64, phase: SandboxPhase) -> SandboxEntry {
        let sandbox = Sandbox {
            metadata: Some(ObjectMeta {
                id: id.to_string(),
                name: name.to_owned(),
                resource_version: version,
                ..Default::default()
            }),
            status: Some(SandboxStatus { phase: phase.into(), ..Default::default() }),
            ..Default::default()
        };
        self.state.lock().unwrap().sandboxes.insert(id, sandbox.clone());
        SandboxEntry {
            epoch: 1,
            version,
            workspace_id: WORKSPACE.to_string(),
            sandbox: Some(sandbox),
            ..Default::default()
        }
    }

    /// Changes a sandbox, and projects it.
    pub(crate) async fn put(&self, id: Uuid, name: &str, version: u64, phase: SandboxPhase) {
        let entry = self.change(id, name, version, phase);
        self.project(id, &entry).await;
    }

    /// Removes a sandbox, and projects that.
    pub(crate) async fn remove(&self, id: Uuid) {
        self.state.lock().unwrap().sandboxes.remove(&id);
        self.project(id, &gone()).await;
    }

    /// Writes an entry of the projection.
    pub(crate) async fn project(&self, id: Uuid, entry: &SandboxEntry) {
        let key = SandboxKey::Sandbox { workspace_id: WORKSPACE, sandbox_id: id }.to_string();
        self.write(Name::Sandboxes, &key, entry.encode_to_vec().into()).await;
    }

    /// Who may read in the workspace; nobody is told.
    pub(crate) fn change_members(&self, members: &[&str]) {
        self.state.lock().unwrap().members = members.iter().map(|&member| member.to_owned()).collect();
    }

    /// Who may read in the workspace, projected.
    pub(crate) async fn put_members(&self, members: &[&str]) {
        self.change_members(members);
        let members = members.iter().map(|&member| (member.to_owned(), WorkspaceRole::User.into())).collect();
        let entry = RightsEntry { epoch: 1, members, ..Default::default() };
        self.write(Name::Rights, &RightsKey::Workspace(WORKSPACE).to_string(), entry.encode_to_vec().into()).await;
    }

    async fn write(&self, name: Name, key: &str, value: Bytes) {
        let bucket = Bucket::new(&self.bus, name);
        let revision = bucket.read_from_leader(key).await.unwrap().revision;
        bucket.update(key, value, revision).await.unwrap();
    }
}

fn gone() -> SandboxEntry {
    SandboxEntry { epoch: 1, workspace_id: WORKSPACE.to_string(), gone: true, ..Default::default() }
}

fn get_sandbox(state: &mut State, request: Bytes) -> Result<Vec<u8>, tonic::Status> {
    let ReadRequest { principal, request, .. } = ReadRequest::decode(request).unwrap();
    let Some(Kind::User(user)) = principal.unwrap().kind else { panic!("only users read") };
    if !user.platform_admin && !state.members.contains(&user.subject) {
        return Err(tonic::Status::permission_denied("not a member of workspace 'w'"));
    }
    let name = GetSandboxRequest::decode(request).unwrap().name;
    let found = state.sandboxes.values().find(|sandbox| sandbox.metadata.as_ref().unwrap().name == name).cloned();
    let sandbox = found.ok_or_else(|| tonic::Status::not_found("no such sandbox"))?;
    Ok(SandboxResponse { sandbox: Some(sandbox), ..Default::default() }.encode_to_vec())
}

fn entries(state: &mut State, request: Bytes) -> Result<Vec<u8>, tonic::Status> {
    state.entries_read += 1;
    let entry = |id: &String| {
        let Some(sandbox) = state.sandboxes.get(&id.parse().unwrap()).cloned() else { return gone() };
        let version = sandbox.metadata.as_ref().unwrap().resource_version;
        SandboxEntry { version, gone: false, sandbox: Some(sandbox), ..gone() }
    };
    let entries = SandboxEntriesRequest::decode(request).unwrap().sandbox_ids.iter().map(entry).collect();
    Ok(SandboxEntriesReply { entries }.encode_to_vec())
}
