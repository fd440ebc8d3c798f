//! A workspace whose deletion was begun and is not wanted any more.

use bytes::Bytes;
use prost::Message as _;
use roadstead_proto::internal::{ReactivateWorkspaceRequest, ReactivateWorkspaceResponse};

use crate::executor::Parts;
use crate::refusal::{Object, Refusal, Shown};
use crate::validate::name;

pub(super) async fn answer(parts: &Parts, request: Bytes) -> Result<Bytes, Refusal> {
    let ReactivateWorkspaceRequest { workspace, operator, reason } = super::read(request)?;
    name::label("workspace", &workspace)?;
    let act = super::act(operator, reason)?;
    let held = parts.database.hold_workspace(&workspace).await.map_err(|error| super::undone(&error))?;
    let held = held.ok_or_else(|| Refusal::not_found(Object::Workspace, &workspace))?;
    if held.row.terminating_since.is_none() {
        held.abandon().await;
        return Err(Refusal::precondition(format!("workspace {} is not being deleted", Shown(&workspace))));
    }
    let (operator, reason) = (act.operator.clone(), act.reason.clone());
    let (row, marks) = held.reactivate(act).await.map_err(|error| super::undone(&error))?;
    parts.marks.committed(marks);
    tracing::info!(workspace_id = %row.id, operator, reason, "an operator brought a workspace back");
    let response =
        ReactivateWorkspaceResponse { workspace_id: row.id.to_string(), resource_version: row.resource_version };
    Ok(response.encode_to_vec().into())
}
