//! `roadstead sandbox`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use roadstead_proto::api::v1;

use super::connect::Connection;
use super::output::{Output, line, short, table};
use super::{logs, request_id, scope, watch};
use crate::operate::keys::write_private;
use crate::operate::operator::Operator;

/// Sandboxes.
#[derive(Args, Debug)]
pub(crate) struct Command {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
    /// Workspace of the sandbox
    #[arg(short, long, env = "ROADSTEAD_WORKSPACE", default_value = "default", global = true)]
    workspace: String,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Make a sandbox; without a name it gets one of two words
    Create {
        name: Option<String>,
        /// Attach a provider; may be repeated
        #[arg(long = "provider", value_name = "NAME")]
        providers: Vec<String>,
        /// Image of the sandbox
        #[arg(long, default_value = "")]
        image: String,
    },
    /// Show one sandbox
    Get { name: String },
    /// Show the sandboxes of the workspace
    List {
        /// Only those with all these labels: key=value,key=value
        #[arg(short, long, default_value = "")]
        selector: String,
        /// Those of every workspace; for platform admins
        #[arg(long)]
        all_workspaces: bool,
    },
    /// Stop a sandbox and keep it
    Stop { name: String },
    /// Start a stopped sandbox
    Start { name: String },
    /// Remove a sandbox
    Delete { name: String },
    /// Show a sandbox's changes as they happen, until it is deleted. `roadstead watch NAME` does the same
    Watch {
        name: String,
        /// End at READY, ERROR, COMPLETED or STOPPED
        #[arg(long)]
        until_terminal: bool,
    },
    /// Show a sandbox's log
    Logs {
        #[command(flatten)]
        wanted: logs::Wanted,
    },
    /// Mint the token with which the sandbox's supervisor connects. Asks admission over the broker, as operator
    Token {
        name: String,
        /// Write the token to this file, readable by you alone, instead of printing it
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
        #[command(flatten)]
        operator: Operator,
    },
}

impl Command {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let (output, workspace) = (self.output, self.workspace);
        let workspace_scope = scope(&workspace);
        let connection = self.connection;
        match self.action {
            Action::Create { name, providers, image } => {
                let template = Some(v1::SandboxTemplate { image, ..Default::default() });
                let request = v1::CreateSandboxRequest {
                    workspace_scope,
                    name: name.unwrap_or_default(),
                    spec: Some(v1::SandboxSpec { providers, template, ..Default::default() }),
                    request_id: request_id(),
                    ..Default::default()
                };
                let response = connection.open().await?.create_sandbox(request).await?.into_inner();
                output.show(&response, |response| rows(response.sandbox.as_slice()))
            }
            Action::Get { name } => {
                let response = connection
                    .open()
                    .await?
                    .get_sandbox(v1::GetSandboxRequest { workspace_scope, name })
                    .await?
                    .into_inner();
                output.show(&response, |response| rows(response.sandbox.as_slice()))
            }
            Action::List { selector, all_workspaces } => {
                let workspace_scope = if all_workspaces { super::every_workspace() } else { workspace_scope };
                let mut client = connection.open().await?;
                let mut all = v1::ListSandboxesResponse::default();
                loop {
                    let request = v1::ListSandboxesRequest {
                        workspace_scope: workspace_scope.clone(),
                        label_selector: selector.clone(),
                        page_token: all.next_page_token.clone(),
                        ..Default::default()
                    };
                    let page = client.list_sandboxes(request).await?.into_inner();
                    all.sandboxes.extend(page.sandboxes);
                    all.next_page_token = page.next_page_token;
                    if all.next_page_token.is_empty() {
                        return output.show(&all, |all| rows(&all.sandboxes));
                    }
                }
            }
            Action::Stop { name } => {
                let request = v1::StopSandboxRequest { workspace_scope, name, request_id: request_id() };
                let response = connection.open().await?.stop_sandbox(request).await?.into_inner();
                output.show(&response, |response| rows(response.sandbox.as_slice()))
            }
            Action::Start { name } => {
                let request = v1::StartSandboxRequest { workspace_scope, name, request_id: request_id() };
                let response = connection.open().await?.start_sandbox(request).await?.into_inner();
                output.show(&response, |response| rows(response.sandbox.as_slice()))
            }
            Action::Delete { name } => {
                let request =
                    v1::DeleteSandboxRequest { workspace_scope, name, request_id: request_id(), ..Default::default() };
                let response = connection.open().await?.delete_sandbox(request).await?.into_inner();
                output.show(&response, |response| match response.outcome() {
                    v1::DeletionOutcome::Accepted => "deletion accepted; it ends when the session has ended".to_owned(),
                    _ => "deleted".to_owned(),
                })
            }
            Action::Watch { name, until_terminal } => {
                watch::run(connection.open_stream().await?, output, &workspace, name, until_terminal).await
            }
            Action::Logs { wanted } => logs::run(&connection, output, &workspace, wanted).await,
            Action::Token { name, to, operator } => {
                let minted = operator.mint(&workspace, &name).await?;
                match to {
                    Some(file) => write_private(&file, minted.token.as_bytes()),
                    None => line(&minted.token),
                }
            }
        }
    }
}

/// The phase as people read it.
pub(crate) fn phase_of(sandbox: &v1::Sandbox) -> String {
    let phase = sandbox.status.as_ref().map_or(v1::SandboxPhase::Unspecified, |status| status.phase());
    short(phase.as_str_name(), "SANDBOX_PHASE_")
}

fn rows(sandboxes: &[v1::Sandbox]) -> String {
    let mut rows = vec![vec!["NAME".into(), "WORKSPACE".into(), "PHASE".into(), "VERSION".into(), "ID".into()]];
    rows.extend(sandboxes.iter().map(|sandbox| {
        let metadata = sandbox.metadata.clone().unwrap_or_default();
        let version = metadata.resource_version.to_string();
        vec![metadata.name, metadata.workspace, phase_of(sandbox), version, metadata.id]
    }));
    table(&rows)
}
