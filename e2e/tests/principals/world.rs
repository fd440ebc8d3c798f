//! A system with users of every standing and sandboxes in two workspaces.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use prost::Message;
use roadstead_proto::api::datamodel::WorkspaceSelector;
use roadstead_proto::api::datamodel::workspace_selector::Selection;
use roadstead_proto::api::v1::{
    AddWorkspaceMemberRequest, CreateSandboxRequest, CreateWorkspaceRequest, SandboxResponse, SandboxSpec,
    WorkspaceRole,
};
use roadstead_proto::method::Method;
use roadstead_testkit::stack::{Plan, Role};
use roadstead_testkit::{Stack, generate};
use serde_json::json;
use tempfile::TempDir;
use tonic::Code;
use uuid::Uuid;

use crate::requests::Target;
use roadstead_e2e::raw::{Raw, bearer};

/// A door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Edge,
    Bridge,
}

/// A user of the token file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    PlatformAdmin,
    /// Admin of the first workspace.
    Admin,
    /// User of the first workspace.
    Member,
    /// Member of no workspace.
    Stranger,
    /// Admin of the first workspace, with a token that has a scope nobody asks for.
    Unscoped,
}

impl User {
    pub(crate) const ALL: [Self; 5] = [Self::PlatformAdmin, Self::Admin, Self::Member, Self::Stranger, Self::Unscoped];

    pub(crate) fn token(self) -> String {
        format!("token-of-{}-0123456789", self.subject())
    }

    pub(crate) fn subject(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    fn entry(self) -> serde_json::Value {
        let roles: &[&str] = if self == Self::PlatformAdmin { &["openshell-admin"] } else { &[] };
        let mut entry = json!({"token": self.token(), "subject": self.subject(), "roles": roles});
        if self == Self::Unscoped {
            entry["scopes"] = json!(["other:read"]);
        }
        entry
    }
}

/// A sandbox with its supervisor's token.
#[derive(Clone, Debug)]
pub(crate) struct Sandbox {
    pub(crate) target: Target,
    pub(crate) token: String,
}

/// The system.
pub(crate) struct World {
    pub(crate) stack: Stack,
    pub(crate) edge: Raw,
    pub(crate) bridge: Raw,
    /// In the first workspace.
    pub(crate) sandbox: Sandbox,
    /// Another one there.
    pub(crate) neighbour: Sandbox,
    /// One in the second workspace, with the name of the first one.
    pub(crate) namesake: Sandbox,
    _tokens: TempDir,
}

impl World {
    /// One of each role; nobody is let in without a credential.
    pub(crate) async fn start() -> Self {
        let tokens = tempfile::tempdir().unwrap();
        let file = tokens.path().join("tokens.json");
        fs::write(&file, json!({"tokens": User::ALL.map(User::entry)}).to_string()).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let plan = Plan::single()
            .flag(Role::Edge, format!("--tokens={}", file.display()))
            .flag(Role::Edge, "--allow-unauthenticated-users=never")
            .flag(Role::Edge, "--bridge-address=https://supervisors.example:17671");
        let stack = Stack::start(plan).await;
        let (edge, bridge) = (Raw::open(&stack.edge(1)).await, Raw::open(&stack.bridge(1)).await);

        let (first, second) = (generate::unique("first"), generate::unique("second"));
        for workspace in [&first, &second] {
            let create = CreateWorkspaceRequest {
                name: workspace.clone(),
                request_id: Uuid::new_v4().to_string(),
                ..Default::default()
            };
            as_platform_admin(&edge, Method::CreateWorkspace, &create).await;
        }
        for (user, role) in [
            (User::Admin, WorkspaceRole::Admin),
            (User::Unscoped, WorkspaceRole::Admin),
            (User::Member, WorkspaceRole::User),
        ] {
            let add = AddWorkspaceMemberRequest {
                workspace_scope: selector(&first),
                principal_subject: user.subject(),
                role: role.into(),
                request_id: Uuid::new_v4().to_string(),
            };
            as_platform_admin(&edge, Method::AddWorkspaceMember, &add).await;
        }
        let sandbox = create_sandbox(&stack, &edge, &first, "one").await;
        let neighbour = create_sandbox(&stack, &edge, &first, "two").await;
        let namesake = create_sandbox(&stack, &edge, &second, "one").await;
        Self { stack, edge, bridge, sandbox, neighbour, namesake, _tokens: tokens }
    }

    pub(crate) fn door(&self, at: At) -> &Raw {
        match at {
            At::Edge => &self.edge,
            At::Bridge => &self.bridge,
        }
    }

    /// A target in the first workspace that does not exist.
    pub(crate) fn missing(&self) -> Target {
        let workspace = self.sandbox.target.workspace.clone();
        Target { workspace, sandbox: generate::unique("none"), sandbox_id: Uuid::new_v4().to_string() }
    }

    /// Everything that users and supervisors could change, as one text. Versions of processes and the ledger are no
    /// part of it.
    pub(crate) async fn state(&self) -> String {
        let mut session = self.stack.session().await;
        let mut state = String::new();
        for table in [
            "workspace",
            "member",
            "provider",
            "sandbox",
            "attachment",
            "policy_revision",
            "setting",
            "settings_revision",
        ] {
            let rows = session.value(&format!("select count(*) || ':' || coalesce(md5(string_agg(t::text, '|' order by t::text)), '') from roadstead.{table} t")).await;
            state.push_str(&format!("{table} {rows}\n"));
        }
        state
    }

    /// How many commands admission has heard of.
    pub(crate) async fn commands(&self) -> u64 {
        let mut session = self.stack.session().await;
        let (commands, claims) = (
            session.value("select count(*) from roadstead.command").await,
            session.value("select count(*) from roadstead.claim").await,
        );
        commands.parse::<u64>().unwrap() + claims.parse::<u64>().unwrap()
    }
}

/// A call that must succeed; its response.
async fn as_platform_admin(edge: &Raw, method: Method, request: &impl Message) -> bytes::Bytes {
    let answer = edge.call(method, &bearer(&User::PlatformAdmin.token()), request.encode_to_vec()).await;
    assert_eq!(answer.code, Code::Ok, "{method}: {}", answer.message);
    answer.first.unwrap()
}

async fn create_sandbox(stack: &Stack, edge: &Raw, workspace: &str, name: &str) -> Sandbox {
    let create = CreateSandboxRequest {
        workspace_scope: selector(workspace),
        name: name.to_owned(),
        spec: Some(SandboxSpec::default()),
        request_id: Uuid::new_v4().to_string(),
        ..Default::default()
    };
    let response = as_platform_admin(edge, Method::CreateSandbox, &create).await;
    let created = SandboxResponse::decode(response).unwrap().sandbox.unwrap();
    let token = fs::read_to_string(stack.token(workspace, name).await).unwrap().trim().to_owned();
    let target =
        Target { workspace: workspace.to_owned(), sandbox: name.to_owned(), sandbox_id: created.metadata.unwrap().id };
    Sandbox { target, token }
}

pub(crate) fn selector(workspace: &str) -> Option<WorkspaceSelector> {
    Some(WorkspaceSelector { selection: Some(Selection::Workspace(workspace.to_owned())) })
}
