//! `roadstead policy`

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use roadstead_proto::api::v1;

use super::connect::Connection;
use super::output::{Output, from_json, short, table};
use super::{request_id, scope};

/// What a sandbox's agent may touch.
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
    /// Replace the policy of a sandbox by the one in a file (a SandboxPolicy in protobuf's JSON form; `-` reads standard input)
    Set { sandbox: String, file: PathBuf },
    /// Show the policy revisions of a sandbox, newest first
    List { sandbox: String },
    /// Show the newest revision of a sandbox's policy
    Get { sandbox: String },
}

impl Command {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let mut client = self.connection.open().await?;
        let output = self.output;
        let workspace_scope = scope(&self.workspace);
        match self.action {
            Action::Set { sandbox, file } => {
                let text = if file.as_os_str() == "-" {
                    std::io::read_to_string(std::io::stdin())?
                } else {
                    std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?
                };
                let policy = from_json(&text).context("the file is not a SandboxPolicy in JSON form")?;
                let request = v1::UpdateConfigRequest {
                    workspace_scope,
                    sandbox,
                    policy: Some(policy),
                    request_id: request_id(),
                    ..Default::default()
                };
                let response = client.update_config(request).await?.into_inner();
                output.show(&response, |response| format!("version {} {}", response.version, response.policy_hash))
            }
            Action::List { sandbox } => {
                let mut all = v1::ListSandboxPoliciesResponse::default();
                loop {
                    let request = v1::ListSandboxPoliciesRequest {
                        workspace_scope: workspace_scope.clone(),
                        sandbox: sandbox.clone(),
                        page_token: all.next_page_token.clone(),
                        ..Default::default()
                    };
                    let page = client.list_sandbox_policies(request).await?.into_inner();
                    all.revisions.extend(page.revisions);
                    all.next_page_token = page.next_page_token;
                    if all.next_page_token.is_empty() {
                        return output.show(&all, |all| rows(&all.revisions));
                    }
                }
            }
            Action::Get { sandbox } => {
                let request = v1::GetSandboxPolicyStatusRequest { workspace_scope, sandbox, ..Default::default() };
                let response = client.get_sandbox_policy_status(request).await?.into_inner();
                output.show(&response, |response| rows(response.revision.as_slice()))
            }
        }
    }
}

fn rows(revisions: &[v1::SandboxPolicyRevision]) -> String {
    let mut rows = vec![vec!["VERSION".into(), "STATUS".into(), "HASH".into(), "ERROR".into()]];
    rows.extend(revisions.iter().map(|revision| {
        vec![
            revision.version.to_string(),
            short(revision.status().as_str_name(), "POLICY_STATUS_"),
            revision.policy_hash.chars().take(12).collect(),
            revision.load_error.clone(),
        ]
    }));
    table(&rows)
}
