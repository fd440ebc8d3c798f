//! The deployment that is measured: its doors, its callers, a sandbox for each.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use roadstead_proto::api::v1;
use serde_json::json;
use uuid::Uuid;

use super::path;
use crate::client::connect::{Client, Connection};
use crate::client::scope;
use crate::demo::target::{Doors, Target};
use crate::operate::keys::write_private;

pub(crate) const WORKSPACE: &str = "bench";
/// Most callers at a time.
pub(crate) const CALLERS: usize = 64;
/// A user who is a member of the workspace and no more.
const MEMBER: &str = "bench-member";
/// A caller here soon has more request ids than a deployment keeps for one.
const QUOTA: (&str, &str) = ("ROADSTEAD_REQUEST_ID_QUOTA", "1000000");
/// A sandbox here may wait for its supervisor until everything before it was measured.
const PROVISIONING: (&str, &str) = ("ROADSTEAD_PROVISIONING_SECONDS", "86400");
/// Comparing what stands with the database, pass after pass, would be counted with what is measured.
const SWEEP: (&str, &str) = ("ROADSTEAD_SWEEP_RATE", "1");

/// A running deployment with everything that is measured on it.
pub(crate) struct Stage {
    pub(crate) target: Target,
    pub(crate) doors: Doors,
    /// One connection for each caller, by turns to each edge, as a user of its own.
    pub(crate) users: Vec<Client>,
    /// One connection to each edge, all as the same user.
    pub(crate) busy: Vec<Client>,
    /// The file with the token of a member.
    pub(crate) member: PathBuf,
}

impl Stage {
    pub(crate) async fn set() -> anyhow::Result<Self> {
        let data = tempfile::Builder::new().prefix("roadstead-bench-").tempdir()?;
        let files: Vec<PathBuf> = (0..CALLERS).map(|at| data.path().join(format!("{}.token", subject(at)))).collect();
        let mut tokens = Vec::new();
        for (at, file) in files.iter().enumerate() {
            let token = new_token(file)?;
            tokens.push(json!({"token": token, "subject": subject(at), "roles": ["openshell-admin"]}));
        }
        let member = data.path().join("member.token");
        tokens.push(json!({"token": new_token(&member)?, "subject": MEMBER}));
        let all = data.path().join("tokens.json");
        write_private(&all, json!({ "tokens": tokens }).to_string().as_bytes())?;
        let flags = [
            format!("--edge-flag=--tokens={}", all.display()),
            "--edge-flag=--allow-unauthenticated-users=loopback".to_owned(),
        ];
        let (target, doors) = Target::start(data, &flags, &[QUOTA, PROVISIONING, SWEEP]).await?;

        let mut users = Vec::new();
        for (file, edge) in files.into_iter().zip(doors.edges.iter().cycle()) {
            users.push(Connection { token_file: Some(file), ..Connection::anonymous(edge) }.open_stream().await?);
        }
        let mut busy = Vec::new();
        for edge in &doors.edges {
            busy.push(Connection::anonymous(edge).open_stream().await?);
        }
        let stage = Self { target, doors, users, busy, member };
        stage.furnish().await?;
        Ok(stage)
    }

    /// A workspace with a member, and a sandbox for each caller.
    async fn furnish(&self) -> anyhow::Result<()> {
        let mut client = self.busy.first().context("no edge runs")?.clone();
        let workspace = v1::CreateWorkspaceRequest { name: WORKSPACE.to_owned(), ..Default::default() };
        client.create_workspace(workspace).await?;
        let member = v1::AddWorkspaceMemberRequest {
            workspace_scope: scope(WORKSPACE),
            principal_subject: MEMBER.to_owned(),
            role: v1::WorkspaceRole::User.into(),
            ..Default::default()
        };
        client.add_workspace_member(member).await?;
        for at in 0..CALLERS {
            self.create_sandbox(at, path::sandbox(at), v1::SandboxSpec::default()).await?;
        }
        Ok(())
    }

    /// Creates one, as one of the callers.
    pub(crate) async fn create_sandbox(
        &self,
        caller: usize,
        name: String,
        spec: v1::SandboxSpec,
    ) -> anyhow::Result<()> {
        let request = v1::CreateSandboxRequest {
            workspace_scope: scope(WORKSPACE),
            name,
            spec: Some(spec),
            ..Default::default()
        };
        self.users[caller % self.users.len()].clone().create_sandbox(request).await?;
        Ok(())
    }

    pub(crate) async fn clear(self) -> anyhow::Result<()> {
        self.target.stop().await
    }
}

/// Writes a token of its own to the file.
fn new_token(file: &Path) -> anyhow::Result<String> {
    let token = Uuid::new_v4().to_string();
    write_private(file, token.as_bytes())?;
    Ok(token)
}

/// Name of a caller.
pub(crate) fn subject(at: usize) -> String {
    format!("bench-{at}")
}
