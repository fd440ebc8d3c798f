//! The operator's commands that speak the public API, as any client does.

pub mod connect;
pub mod output;
pub mod policy;
pub mod provider;
pub mod sandbox;
pub mod watch;
pub mod workspace;

use roadstead_proto::api::datamodel::{AllWorkspaces, WorkspaceSelector, workspace_selector::Selection};

/// Selects one workspace.
pub fn scope(workspace: &str) -> Option<WorkspaceSelector> {
    Some(WorkspaceSelector { selection: Some(Selection::Workspace(workspace.to_owned())) })
}

/// Selects every workspace.
pub fn every_workspace() -> Option<WorkspaceSelector> {
    Some(WorkspaceSelector { selection: Some(Selection::AllWorkspaces(AllWorkspaces {})) })
}

/// A fresh request id: the same call can then be repeated without being done twice.
pub fn request_id() -> String {
    uuid::Uuid::new_v4().to_string()
}
