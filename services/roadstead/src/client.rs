//! The operator's commands that speak the public API, as any client does.

pub(crate) mod config;
pub(crate) mod connect;
pub(crate) mod logs;
pub(crate) mod output;
pub(crate) mod policy;
pub(crate) mod provider;
pub(crate) mod sandbox;
pub(crate) mod wait;
pub(crate) mod watch;
pub(crate) mod workspace;

use roadstead_proto::api::datamodel::{AllWorkspaces, WorkspaceSelector, workspace_selector::Selection};

/// Selects one workspace.
pub(crate) fn scope(workspace: &str) -> Option<WorkspaceSelector> {
    Some(WorkspaceSelector { selection: Some(Selection::Workspace(workspace.to_owned())) })
}

/// Selects every workspace.
pub(crate) fn every_workspace() -> Option<WorkspaceSelector> {
    Some(WorkspaceSelector { selection: Some(Selection::AllWorkspaces(AllWorkspaces {})) })
}

/// A fresh request id: the same call can then be repeated without being done twice.
pub(crate) fn request_id() -> String {
    uuid::Uuid::new_v4().to_string()
}
