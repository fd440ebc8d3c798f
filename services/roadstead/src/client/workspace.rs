//! `roadstead workspace`

use clap::{Args, Subcommand};
use roadstead_proto::api::datamodel::{Workspace, WorkspacePhase};
use roadstead_proto::api::v1;
use roadstead_proto::internal::{ReactivateWorkspaceRequest, ReactivateWorkspaceResponse};
use roadstead_proto::subject::AdminCall;

use super::connect::Connection;
use super::output::{Output, short, table};
use super::{request_id, scope};
use crate::operate::operator::{Act, Operator};

/// Workspaces and their members.
#[derive(Args, Debug)]
pub(crate) struct Command {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Make a workspace
    Create { name: String },
    /// Show one workspace
    Get { name: String },
    /// Show all workspaces that you may see
    List,
    /// Remove an empty workspace
    Delete { name: String },
    /// Bring a workspace back whose deletion was begun. Asks admission over the broker, as operator
    Reactivate {
        name: String,
        #[command(flatten)]
        act: Act,
        #[command(flatten)]
        operator: Operator,
    },
    /// Let a subject act in a workspace
    AddMember {
        workspace: String,
        subject: String,
        /// Make the member an admin of the workspace
        #[arg(long)]
        admin: bool,
    },
    /// Take a subject's rights in a workspace away
    RemoveMember { workspace: String, subject: String },
    /// Show the members of a workspace
    Members { workspace: String },
}

impl Command {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let output = self.output;
        let connection = self.connection;
        match self.action {
            Action::Create { name } => {
                let request = v1::CreateWorkspaceRequest { name, request_id: request_id(), ..Default::default() };
                let response = connection.open().await?.create_workspace(request).await?.into_inner();
                output.show(&response, |response| rows(response.workspace.as_slice()))
            }
            Action::Get { name } => {
                let response =
                    connection.open().await?.get_workspace(v1::GetWorkspaceRequest { name }).await?.into_inner();
                output.show(&response, |response| rows(response.workspace.as_slice()))
            }
            Action::List => {
                let mut client = connection.open().await?;
                let mut all = v1::ListWorkspacesResponse::default();
                loop {
                    let request =
                        v1::ListWorkspacesRequest { page_token: all.next_page_token.clone(), ..Default::default() };
                    let page = client.list_workspaces(request).await?.into_inner();
                    all.workspaces.extend(page.workspaces);
                    all.next_page_token = page.next_page_token;
                    if all.next_page_token.is_empty() {
                        return output.show(&all, |all| rows(&all.workspaces));
                    }
                }
            }
            Action::Delete { name } => {
                let request = v1::DeleteWorkspaceRequest { name, request_id: request_id(), ..Default::default() };
                let response = connection.open().await?.delete_workspace(request).await?.into_inner();
                output.show(&response, |_| "deleted".to_owned())
            }
            Action::Reactivate { name, act, operator } => reactivate(name, act, &operator, output).await,
            Action::AddMember { workspace, subject, admin } => {
                let role = if admin { v1::WorkspaceRole::Admin } else { v1::WorkspaceRole::User };
                let request = v1::AddWorkspaceMemberRequest {
                    workspace_scope: scope(&workspace),
                    principal_subject: subject,
                    role: role.into(),
                    request_id: request_id(),
                };
                let response = connection.open().await?.add_workspace_member(request).await?.into_inner();
                output.show(&response, |response| members(response.member.as_slice()))
            }
            Action::RemoveMember { workspace, subject } => {
                let request = v1::RemoveWorkspaceMemberRequest {
                    workspace_scope: scope(&workspace),
                    principal_subject: subject,
                    request_id: request_id(),
                    ..Default::default()
                };
                let response = connection.open().await?.remove_workspace_member(request).await?.into_inner();
                output.show(&response, |_| "removed".to_owned())
            }
            Action::Members { workspace } => {
                let mut client = connection.open().await?;
                let mut all = v1::ListWorkspaceMembersResponse::default();
                loop {
                    let request = v1::ListWorkspaceMembersRequest {
                        workspace_scope: scope(&workspace),
                        page_token: all.next_page_token.clone(),
                        ..Default::default()
                    };
                    let page = client.list_workspace_members(request).await?.into_inner();
                    all.members.extend(page.members);
                    all.next_page_token = page.next_page_token;
                    if all.next_page_token.is_empty() {
                        return output.show(&all, |all| members(&all.members));
                    }
                }
            }
        }
    }
}

async fn reactivate(workspace: String, act: Act, operator: &Operator, output: Output) -> anyhow::Result<()> {
    let Act { reason, name } = act;
    let request = ReactivateWorkspaceRequest { workspace, operator: name, reason };
    let response: ReactivateWorkspaceResponse = operator.ask(AdminCall::ReactivateWorkspace, &request).await?;
    output.show(&response, |_| "active".to_owned())
}

fn rows(workspaces: &[Workspace]) -> String {
    let mut rows = vec![vec!["NAME".into(), "PHASE".into(), "ID".into()]];
    rows.extend(workspaces.iter().map(|workspace| {
        let metadata = workspace.metadata.clone().unwrap_or_default();
        let phase = workspace.status.as_ref().map_or(WorkspacePhase::Unspecified, |status| status.phase());
        vec![metadata.name, short(phase.as_str_name(), "WORKSPACE_PHASE_"), metadata.id]
    }));
    table(&rows)
}

fn members(members: &[v1::WorkspaceMember]) -> String {
    let mut rows = vec![vec!["SUBJECT".into(), "ROLE".into()]];
    rows.extend(
        members.iter().map(|member| {
            vec![member.principal_subject.clone(), short(member.role().as_str_name(), "WORKSPACE_ROLE_")]
        }),
    );
    table(&rows)
}
