//! A system whose doors have peers of all kinds.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use roadstead_e2e::api::{Client, client, request_id, scope};
use roadstead_e2e::raw::{Open, Raw, bearer};
use roadstead_proto::api::v1::supervisor_message::Payload;
use roadstead_proto::api::v1::{
    CreateSandboxRequest, CreateWorkspaceRequest, SandboxSpec, SupervisorHello, SupervisorMessage, WatchSandboxRequest,
};
use roadstead_proto::method::Method;
use roadstead_testkit::stack::{Node, Plan};
use roadstead_testkit::{Stack, generate};

/// Slack of a bound for a loaded machine.
pub(crate) const CROWD: Duration = Duration::from_secs(5);

/// The system, and a workspace in it.
pub(crate) struct World {
    pub(crate) stack: Stack,
    pub(crate) workspace: String,
}

impl World {
    pub(crate) async fn start(plan: Plan) -> Self {
        let world = Self { stack: Stack::start(plan).await, workspace: generate::unique("doors") };
        let request =
            CreateWorkspaceRequest { name: world.workspace.clone(), request_id: request_id(), ..Default::default() };
        world.api().create_workspace(request).await.unwrap();
        world
    }

    pub(crate) fn api(&self) -> Client {
        client(&self.stack.edge(1))
    }

    /// A sandbox; its id.
    pub(crate) async fn sandbox(&self, name: &str, spec: SandboxSpec) -> String {
        let request = CreateSandboxRequest {
            workspace_scope: scope(&self.workspace),
            name: name.to_owned(),
            spec: Some(spec),
            request_id: request_id(),
            ..Default::default()
        };
        let created = self.api().create_sandbox(request).await.unwrap().into_inner();
        created.sandbox.unwrap().metadata.unwrap().id
    }

    pub(crate) fn watching(&self, name: &str) -> WatchSandboxRequest {
        WatchSandboxRequest {
            workspace_scope: scope(&self.workspace),
            sandbox: name.to_owned(),
            follow_status: true,
            ..Default::default()
        }
    }

    /// A session of a sandbox through the bridge at `url`, open on both sides.
    pub(crate) async fn session(&self, url: &str, name: &str, sandbox_id: &str) -> Open {
        let token = std::fs::read_to_string(self.stack.token(&self.workspace, name).await).unwrap();
        let hello = SupervisorHello {
            sandbox_id: sandbox_id.to_owned(),
            instance_id: request_id(),
            connection_epoch: 1,
            supports_config_push: true,
            ..Default::default()
        };
        let hello = SupervisorMessage { payload: Some(Payload::Hello(hello)) }.encode_to_vec();
        let connection = Raw::open(url).await;
        let mut open = connection.stream(Method::ConnectSupervisor, &bearer(token.trim()), hello).await.unwrap();
        let accepted: Option<Bytes> = open.responses.message().await.unwrap();
        assert!(accepted.is_some());
        open
    }
}

/// Where a door of the system is.
pub(crate) fn address(node: &Node) -> SocketAddr {
    node.url().strip_prefix("http://").unwrap().parse().unwrap()
}
