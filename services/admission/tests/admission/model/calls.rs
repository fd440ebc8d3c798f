//! Random calls.

use std::time::Duration;

use roadstead_proto::api::v1;
use roadstead_proto::internal::{Command, User};
use roadstead_proto::method::Method;
use roadstead_testkit::dice::Dice;
use uuid::Uuid;

use crate::requests::{self, Request};
use crate::world::{World, command, create_sandbox, principal, root, scope, user_named};

const WORKSPACES: [&str; 3] = ["w0", "w1", "w2"];
const SANDBOXES: [&str; 4] = ["s0", "s1", "s2", "s3"];
const PROVIDERS: [&str; 2] = ["p0", "p1"];
/// What a client may wait for an answer.
const PATIENCE: Duration = Duration::from_secs(40);

/// A command, and how many copies of it are sent at a time.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) user: User,
    pub(crate) request: Request,
    pub(crate) command: Command,
    pub(crate) copies: usize,
}

/// Whose request id: caller, method, workspace, id.
pub(crate) type Key = (String, Method, String, String);

impl Call {
    fn new(user: User, request: Request, copies: usize) -> Self {
        let mut command = command(request.method.name(), principal(&user), &(), PATIENCE);
        command.request = request.bytes().into();
        Self { user, request, command, copies }
    }

    pub(crate) fn id(&self) -> Uuid {
        Uuid::try_parse(&self.command.command_id).unwrap()
    }

    /// None without a request id.
    pub(crate) fn key(&self) -> Option<Key> {
        let text = |name: &str| self.request.message.get_field_by_name(name).unwrap();
        let id = text("request_id").as_str().unwrap().to_owned();
        let workspace = format!("{:?}", text("workspace_scope"));
        (!id.is_empty()).then(|| (self.user.subject.clone(), self.request.method, workspace, id))
    }

    /// The same request as a command of its own.
    pub(crate) fn duplicate(&self) -> Self {
        Self::new(self.user.clone(), self.request.clone(), 1)
    }

    /// Another request under the same id; none if there is no id.
    pub(crate) fn mismatch(&self) -> Option<Self> {
        self.key()?;
        let mut request = self.request.clone();
        let field = request.method.input_descriptor().get_field_by_name("annotations");
        let changes = roadstead_testkit::variation::changes_at(&request.message, &mut |path, what| match &field {
            Some(_) => path == "annotations" && what == "set",
            None => path.is_empty() && what == "unknown field",
        });
        request.message = changes.into_iter().next()?.message;
        Some(Self::new(self.user.clone(), request, 1))
    }
}

/// What the calls are about.
pub(crate) async fn prepare(world: &mut World) {
    for workspace in WORKSPACES {
        world.workspace(workspace).await;
        for sandbox in SANDBOXES {
            world.sandbox(workspace, sandbox).await;
        }
        for provider in PROVIDERS {
            let create = requests::create_provider(workspace, provider);
            world.edge.user_call(&root(), Method::CreateProvider, &create).await.unwrap();
        }
    }
    for workspace in &WORKSPACES[..2] {
        let member = v1::AddWorkspaceMemberRequest {
            workspace_scope: scope(workspace),
            principal_subject: "ann".into(),
            role: v1::WorkspaceRole::User.into(),
            ..Default::default()
        };
        world.edge.user_call(&root(), Method::AddWorkspaceMember, &member).await.unwrap();
    }
    // They run, so that they can be stopped.
    world.sql.run("update roadstead.sandbox set phase = 2").await;
    world.quiet().await;
}

/// Calls of two users, many of them copies of each other in one way or another.
pub(crate) fn random(dice: &mut Dice, count: u32) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    for _ in 0..count {
        let earlier = (!calls.is_empty() && dice.happens(35)).then(|| dice.pick(&calls).clone());
        let call = match earlier {
            Some(earlier) if dice.happens(30) => earlier.mismatch().unwrap_or_else(|| earlier.duplicate()),
            Some(earlier) => earlier.duplicate(),
            None => fresh(dice),
        };
        let copies = if dice.happens(20) { 2 } else { 1 };
        calls.push(Call { copies, ..call });
    }
    calls
}

fn fresh(dice: &mut Dice) -> Call {
    let user = if dice.happens(50) { root() } else { user_named("ann", false) };
    let (workspace, sandbox) = (*dice.pick(&WORKSPACES), *dice.pick(&SANDBOXES));
    let provider = *dice.pick(&PROVIDERS);
    let scope = || scope(workspace);
    let name = sandbox.to_owned();
    let request = match dice.below(8) {
        0 | 1 => Request::new(Method::CreateSandbox, &create_sandbox(workspace, sandbox, "")),
        2 => {
            let allow_missing = dice.happens(50);
            let request =
                v1::DeleteSandboxRequest { name, allow_missing, workspace_scope: scope(), ..Default::default() };
            Request::new(Method::DeleteSandbox, &request)
        }
        3 => {
            let request = v1::StopSandboxRequest { name, workspace_scope: scope(), ..Default::default() };
            Request::new(Method::StopSandbox, &request)
        }
        4 => {
            let request = v1::StartSandboxRequest { name, workspace_scope: scope(), ..Default::default() };
            Request::new(Method::StartSandbox, &request)
        }
        5 => {
            let request = v1::AttachSandboxProviderRequest {
                sandbox: name,
                provider: provider.into(),
                workspace_scope: scope(),
                ..Default::default()
            };
            Request::new(Method::AttachSandboxProvider, &request)
        }
        6 => {
            let request = v1::DetachSandboxProviderRequest {
                sandbox: name,
                provider: provider.into(),
                workspace_scope: scope(),
                ..Default::default()
            };
            Request::new(Method::DetachSandboxProvider, &request)
        }
        _ if dice.happens(50) => {
            let mut provider = requests::provider(provider, &format!("value {}", dice.below(1000)));
            provider.r#type.clear();
            let request =
                v1::UpdateProviderRequest { provider: Some(provider), workspace_scope: scope(), ..Default::default() };
            Request::new(Method::UpdateProvider, &request)
        }
        _ => Request::new(Method::UpdateConfig, &requests::setting(workspace, sandbox, dice.happens(50))),
    };
    let request = if dice.happens(60) { request.with_id() } else { request };
    Call::new(user, request, 1)
}
