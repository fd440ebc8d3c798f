//! A system with two of every role, and a workspace in it.

use std::time::Duration;

use roadstead_e2e::api::{Client, client, request_id, scope};
use roadstead_e2e::{Toggle, toggle};
use roadstead_proto::api::v1::open_shell_client::OpenShellClient;
use roadstead_proto::api::v1::{
    CreateSandboxRequest, CreateWorkspaceRequest, DeleteSandboxRequest, GetSandboxRequest, SandboxPhase, SandboxSpec,
    WatchSandboxRequest,
};
use roadstead_testkit::stack::{Plan, Role};
use roadstead_testkit::{Stack, generate};
use tonic::Status;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::watching::Watching;

/// Longest wait for what has no bound of its own.
pub(crate) const SOON: Duration = Duration::from_secs(30);
/// How long a change may take from Postgres to an open stream, and the slack for a loaded machine.
pub(crate) const IN_TIME: Duration = Duration::from_secs(2);
pub(crate) const CROWD: Duration = Duration::from_secs(1);

pub(crate) struct World {
    pub(crate) stack: Stack,
    pub(crate) workspace: String,
    /// Who signed the edges' certificate, if they have one.
    authority: Option<String>,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::with(Plan::pairs(), None).await
    }

    /// With edges that speak TLS.
    pub(crate) async fn start_with_tls() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("certificate.pem"), folder.path().join("key.pem"));
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let plan = Plan::pairs()
            .flag(Role::Edge, format!("--tls-cert={}", certificate.display()))
            .flag(Role::Edge, format!("--tls-key={}", key.display()));
        Self::with(plan, Some(made.cert.pem())).await
    }

    async fn with(plan: Plan, authority: Option<String>) -> Self {
        let world = Self { stack: Stack::start(plan).await, workspace: generate::unique("watch"), authority };
        let request =
            CreateWorkspaceRequest { name: world.workspace.clone(), request_id: request_id(), ..Default::default() };
        world.edge(1).create_workspace(request).await.unwrap();
        world
    }

    /// A client of an edge, with a connection of its own.
    pub(crate) fn edge(&self, number: usize) -> Client {
        match self.authority {
            None => client(&self.stack.edge(number)),
            Some(_) => OpenShellClient::new(self.tls(number)),
        }
    }

    /// A connection to an edge that speaks TLS.
    pub(crate) fn tls(&self, edge: usize) -> Channel {
        let authority = Certificate::from_pem(self.authority.as_ref().unwrap());
        let tls = ClientTlsConfig::new().ca_certificate(authority).domain_name("localhost");
        let url = self.stack.edge(edge).replace("http://", "https://");
        Endpoint::from_shared(url).unwrap().tls_config(tls).unwrap().connect_lazy()
    }

    /// Makes a sandbox; its id.
    pub(crate) async fn sandbox(&self, name: &str) -> String {
        let request = CreateSandboxRequest {
            workspace_scope: scope(&self.workspace),
            name: name.to_owned(),
            spec: Some(SandboxSpec::default()),
            request_id: request_id(),
            ..Default::default()
        };
        let created = self.edge(1).create_sandbox(request).await.unwrap().into_inner();
        created.sandbox.unwrap().metadata.unwrap().id
    }

    pub(crate) async fn delete(&self, edge: usize, name: &str) {
        let request = DeleteSandboxRequest {
            workspace_scope: scope(&self.workspace),
            name: name.to_owned(),
            request_id: request_id(),
            ..Default::default()
        };
        self.edge(edge).delete_sandbox(request).await.unwrap();
    }

    /// Makes a provider with a credential.
    pub(crate) async fn provider(&self, name: &str) {
        toggle::provider(self.edge(1), &self.workspace, name).await;
    }

    /// What changes a sandbox through an edge, by a provider.
    pub(crate) fn toggle(&self, edge: usize, sandbox: &str, provider: &str) -> Toggle {
        Toggle::with(self.edge(edge), &self.workspace, sandbox, provider)
    }

    /// The version that an edge says a sandbox has.
    pub(crate) async fn version(&self, name: &str) -> u64 {
        let request = GetSandboxRequest { workspace_scope: scope(&self.workspace), name: name.to_owned() };
        let found = self.edge(1).get_sandbox(request).await.unwrap().into_inner();
        found.sandbox.unwrap().metadata.unwrap().resource_version
    }

    /// What follows a sandbox's status.
    pub(crate) fn status(&self, name: &str) -> WatchSandboxRequest {
        WatchSandboxRequest {
            workspace_scope: scope(&self.workspace),
            sandbox: name.to_owned(),
            follow_status: true,
            ..Default::default()
        }
    }

    /// Opens a watch through an edge.
    pub(crate) async fn watch(&self, edge: usize, request: WatchSandboxRequest) -> Result<Watching, Status> {
        Watching::open(self.edge(edge), request).await
    }

    /// The statement that changes a sandbox as an operator would by hand, with its version.
    pub(crate) fn by_hand(&self, name: &str, phase: Option<SandboxPhase>) -> String {
        let phase = phase.map_or_else(|| "phase".to_owned(), |phase| i32::from(phase).to_string());
        format!(
            "update roadstead.sandbox set resource_version = resource_version + 1, phase = {phase}, \
             labels = labels || '{{\"touched\": \"by-hand\"}}' where name = '{name}' and workspace_name = '{}'",
            self.workspace
        )
    }
}
