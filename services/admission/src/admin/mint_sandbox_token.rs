//! A token for a sandbox's supervisor.

use std::time::SystemTime;

use bytes::Bytes;
use prost::Message as _;
use prost_types::Timestamp;
use roadstead_proto::internal::{MintSandboxTokenRequest, MintSandboxTokenResponse};
use roadstead_store::read::Reader;
use secrecy::ExposeSecret as _;

use crate::executor::Parts;
use crate::refusal::{Object, Refusal};
use crate::validate::name;

/// A token for the sandbox's present generation.
pub(super) async fn answer(parts: &Parts, request: Bytes, now: SystemTime) -> Result<Bytes, Refusal> {
    let request: MintSandboxTokenRequest = super::read(request)?;
    name::label("workspace", &request.workspace)?;
    name::label("sandbox", &request.sandbox)?;
    let seen = parts.database.sandbox(&request.workspace, &request.sandbox, Reader::ADMIN).await;
    let seen = seen.map_err(|error| {
        tracing::warn!(%error, "cannot look for the sandbox of a token");
        Refusal::Unavailable
    })?;
    if seen.access.workspace.is_none() {
        return Err(Refusal::not_found(Object::Workspace, request.workspace));
    }
    let sandbox = seen.found.ok_or_else(|| Refusal::not_found(Object::Sandbox, request.sandbox))?;
    let minted = parts.minter.mint(sandbox.id, sandbox.generation, now);
    tracing::info!(sandbox_id = %sandbox.id, generation = sandbox.generation, "an operator was given a sandbox's token");
    let response = MintSandboxTokenResponse {
        sandbox_id: sandbox.id.to_string(),
        token: minted.token.expose_secret().to_owned(),
        expiration_time: Some(Timestamp::from(minted.expires_at)),
    };
    Ok(response.encode_to_vec().into())
}
