//! A system of two edges and two bridges, with a sandbox whose log the test writes.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use roadstead_e2e::Pushing;
use roadstead_e2e::api::{Client, client, request_id, scope};
use roadstead_proto::api::v1::open_shell_client::OpenShellClient;
use roadstead_proto::api::v1::sandbox_stream_event::Payload;
use roadstead_proto::api::v1::{
    CreateSandboxRequest, CreateWorkspaceRequest, SandboxSpec, SandboxStreamEvent, WatchSandboxRequest,
};
use roadstead_testkit::stack::{Plan, Role};
use roadstead_testkit::{Stack, eventually, generate};
use tonic::transport::Endpoint;
use tonic::{Code, Status, Streaming};

/// Longest wait for what has no bound of its own.
pub(crate) const SOON: Duration = Duration::from_secs(30);

pub(crate) struct World {
    pub(crate) stack: Stack,
    pub(crate) workspace: String,
    /// Tokens by the name of their sandbox, for the time when nobody can mint any.
    tokens: Mutex<HashMap<String, String>>,
}

impl World {
    pub(crate) async fn start() -> Self {
        let plan = Plan::single().replicas(Role::Edge, 2).replicas(Role::SupervisorBridge, 2);
        let world =
            Self { stack: Stack::start(plan).await, workspace: generate::unique("logs"), tokens: Mutex::default() };
        let request =
            CreateWorkspaceRequest { name: world.workspace.clone(), request_id: request_id(), ..Default::default() };
        world.edge(1).create_workspace(request).await.unwrap();
        world
    }

    pub(crate) fn edge(&self, number: usize) -> Client {
        client(&self.stack.edge(number))
    }

    /// A client that buffers next to nothing.
    pub(crate) fn narrow_edge(&self, number: usize) -> Client {
        let endpoint = Endpoint::from_shared(self.stack.edge(number)).unwrap();
        OpenShellClient::new(endpoint.initial_stream_window_size(2048).connect_lazy())
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
        let token = std::fs::read_to_string(self.stack.token(&self.workspace, name).await).unwrap();
        self.tokens.lock().unwrap().insert(name.to_owned(), token);
        created.sandbox.unwrap().metadata.unwrap().id
    }

    /// Opens a stream of lines as that sandbox.
    pub(crate) fn push(&self, bridge: usize, name: &str, sandbox_id: &str) -> Pushing {
        let token = self.tokens.lock().unwrap()[name].clone();
        Pushing::open(&self.stack.bridge(bridge), &token, sandbox_id)
    }

    /// Logs these numbers through a stream of their own, and waits until they are stored.
    pub(crate) async fn log(&self, bridge: usize, name: &str, sandbox_id: &str, numbers: std::ops::Range<u32>) {
        let pushing = self.push(bridge, name, sandbox_id);
        let numbers = numbers.collect::<Vec<_>>();
        for numbers in numbers.chunks(100) {
            pushing.batch(numbers.iter().copied()).await;
        }
        pushing.end().await.unwrap();
    }

    /// What follows logs and events of a sandbox.
    pub(crate) fn follow(&self, name: &str) -> WatchSandboxRequest {
        WatchSandboxRequest {
            workspace_scope: scope(&self.workspace),
            sandbox: name.to_owned(),
            follow_logs: true,
            ..Default::default()
        }
    }

    /// Opens a watch.
    pub(crate) async fn watch(
        &self,
        edge: usize,
        request: WatchSandboxRequest,
    ) -> Result<Streaming<SandboxStreamEvent>, Status> {
        self.edge(edge).watch_sandbox(request).await.map(tonic::Response::into_inner)
    }

    /// The code with which a resume is refused.
    pub(crate) async fn refused(&self, edge: usize, name: &str, cursor: &str) -> Code {
        let request = WatchSandboxRequest { resume_after_cursor: cursor.to_owned(), ..self.follow(name) };
        // While it recovers, an edge says so.
        eventually(SOON, "an answer", async || match self.watch(edge, request.clone()).await {
            Err(status) if status.code() == Code::Unavailable => Err(status.to_string()),
            Err(status) => Ok(status.code()),
            Ok(_) => Ok(Code::Ok),
        })
        .await
    }
}

/// What a stream shows, as far as these tests look.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shown {
    State(u64),
    Line {
        number: u32,
        cursor: String,
    },
    /// A line of the gateway's own.
    Word(String),
    Event {
        reason: String,
        version: String,
        cursor: String,
    },
    Warning(String),
}

pub(crate) async fn next(stream: &mut Streaming<SandboxStreamEvent>) -> Shown {
    let event = tokio::time::timeout(SOON, stream.message()).await.expect("an event").unwrap();
    let SandboxStreamEvent { payload, cursor } = event.expect("the stream goes on");
    match payload.unwrap() {
        Payload::Sandbox(sandbox) => Shown::State(sandbox.metadata.unwrap().resource_version),
        Payload::Log(log) => match log.message.parse() {
            Ok(number) => Shown::Line { number, cursor },
            Err(_) => Shown::Word(log.message),
        },
        Payload::Event(event) => {
            Shown::Event { reason: event.reason, version: event.metadata["resource_version"].clone(), cursor }
        }
        Payload::Warning(warning) => Shown::Warning(warning.message),
        Payload::DraftPolicyUpdate(draft) => panic!("{draft:?}"),
    }
}

/// The next line; nothing else may come before it but states.
pub(crate) async fn next_line(stream: &mut Streaming<SandboxStreamEvent>) -> (u32, String) {
    loop {
        match next(stream).await {
            Shown::Line { number, cursor } => return (number, cursor),
            Shown::State(_) => {}
            other => panic!("a line: {other:?}"),
        }
    }
}
