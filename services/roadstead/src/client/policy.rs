//! `roadstead policy`

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use roadstead_proto::api::v1;

use super::connect::Connection;
use super::output::{Format, Output, from_json, line, short, table};
use super::wait::{Sandbox, Wanted, until};
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
    Set {
        sandbox: String,
        file: PathBuf,
        #[command(flatten)]
        patience: Patience,
    },
    /// Change the policy of a sandbox by the operations in a file (a list of PolicyMergeOperation in protobuf's JSON form; `-` reads standard input): all of them or none
    Merge {
        sandbox: String,
        file: PathBuf,
        #[command(flatten)]
        patience: Patience,
    },
    /// Show the policy revisions of a sandbox, newest first
    List { sandbox: String },
    /// Show the newest revision of a sandbox's policy
    Get { sandbox: String },
}

#[derive(Args, Clone, Copy, Debug)]
struct Patience {
    /// Wait until the supervisor has taken the revision, as `roadstead config wait` does
    #[arg(long)]
    wait: bool,
}

impl Command {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let mut client = self.connection.open().await?;
        let output = self.output;
        let workspace_scope = scope(&self.workspace);
        match self.action {
            Action::Set { sandbox, file, patience } => {
                let policy = from_json(&read(&file)?).context("the file is not a SandboxPolicy in JSON form")?;
                let request = v1::UpdateConfigRequest {
                    workspace_scope,
                    sandbox: sandbox.clone(),
                    policy: Some(policy),
                    request_id: request_id(),
                    ..Default::default()
                };
                let changed = client.update_config(request).await?.into_inner();
                output.show(&changed, written)?;
                loaded(&self.connection, output, (self.workspace, sandbox), changed.version, patience).await
            }
            Action::Merge { sandbox, file, patience } => {
                let request = v1::UpdateConfigRequest {
                    workspace_scope,
                    sandbox: sandbox.clone(),
                    merge_operations: operations(&read(&file)?)?,
                    request_id: request_id(),
                    ..Default::default()
                };
                let changed = client.update_config(request).await?.into_inner();
                output.show(&changed, written)?;
                loaded(&self.connection, output, (self.workspace, sandbox), changed.version, patience).await
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

/// Waits for what was just written, if that is wished.
async fn loaded(
    connection: &Connection,
    output: Output,
    (workspace, name): (String, String),
    version: u32,
    patience: Patience,
) -> anyhow::Result<()> {
    if !patience.wait {
        return Ok(());
    }
    let sandbox = Sandbox { client: connection.open_stream().await?, workspace, name };
    let told = until(sandbox, Some(Wanted::Policy(version)), Duration::from_secs(connection.timeout)).await?;
    // In JSON form the answer stands alone.
    if output.output == Format::Text { line(&told) } else { Ok(()) }
}

fn read(file: &Path) -> anyhow::Result<String> {
    if file.as_os_str() == "-" {
        return Ok(std::io::read_to_string(std::io::stdin())?);
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

fn operations(text: &str) -> anyhow::Result<Vec<v1::PolicyMergeOperation>> {
    let list: Vec<serde_json::Value> = serde_json::from_str(text).context("the file is not a list in JSON form")?;
    let operation = |(at, value): (usize, &serde_json::Value)| {
        from_json(&value.to_string()).with_context(|| format!("entry {at} is not a PolicyMergeOperation in JSON form"))
    };
    list.iter().enumerate().map(operation).collect()
}

fn written(response: &v1::UpdateConfigResponse) -> String {
    format!("version {} {}", response.version, response.policy_hash)
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

#[cfg(test)]
mod tests {
    use roadstead_proto::api::v1::policy_merge_operation::Operation;

    use super::*;

    #[test]
    fn operations_are_a_list_in_json_form() {
        let text = r#"[{"removeRule": {"ruleName": "web"}}, {"add_rule": {"rule_name": "git", "rule": {}}}]"#;
        let read = operations(text).unwrap();
        assert!(matches!(&read[0].operation, Some(Operation::RemoveRule(remove)) if remove.rule_name == "web"));
        assert!(matches!(&read[1].operation, Some(Operation::AddRule(add)) if add.rule.is_some()));
        let refused = operations(r#"[{"removeRule": {}}, {"dropRule": {}}]"#).unwrap_err();
        assert!(refused.to_string().starts_with("entry 1 "), "{refused}");
        assert!(operations("{}").is_err());
    }
}
