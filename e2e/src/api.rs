//! Clients of the public API and the parts of requests that all calls share.

use std::time::Duration;

use roadstead_proto::api::{
    datamodel::{WorkspaceSelector, workspace_selector::Selection},
    v1::open_shell_client::OpenShellClient,
};
use tonic::{
    Status,
    metadata::MetadataMap,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt as _;
use uuid::Uuid;

/// A client without a token, which an edge on loopback takes for a local developer.
pub type Client = OpenShellClient<Channel>;

const CONNECT_TIME: Duration = Duration::from_secs(5);

/// A client of the edge at `url`. It connects when it is used, and again after the edge was away.
#[must_use]
pub fn client(url: &str) -> Client {
    let endpoint = Endpoint::from_shared(url.to_owned()).unwrap().connect_timeout(CONNECT_TIME);
    OpenShellClient::new(endpoint.connect_lazy())
}

/// Selects one workspace.
#[must_use]
pub fn scope(workspace: &str) -> Option<WorkspaceSelector> {
    Some(WorkspaceSelector { selection: Some(Selection::Workspace(workspace.to_owned())) })
}

/// A request id that nobody has used.
#[must_use]
pub fn request_id() -> String {
    Uuid::new_v4().to_string()
}

/// Whether an answer's metadata say that it was given before.
#[must_use]
pub fn is_replay(metadata: &MetadataMap) -> bool {
    metadata.contains_key("openshell-replayed")
}

/// The reason in a status's details; empty if there is none.
#[must_use]
pub fn reason(status: &Status) -> String {
    status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
}
