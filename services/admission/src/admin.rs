//! What operators ask for, over the broker as their own user, sealed both ways.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use prost::Message;
use prost_types::Timestamp;
use roadstead_bus::service::Endpoint;
use roadstead_proto::internal::{
    Answer, Command, MintSandboxTokenRequest, MintSandboxTokenResponse, OperatorRequest, answer,
};
use roadstead_proto::subject::{self, AdminCall};
use roadstead_service_kit::clock;
use roadstead_store::read::Reader;
use secrecy::ExposeSecret as _;
use uuid::Uuid;

use crate::attempt::status;
use crate::executor::Parts;
use crate::refusal::{Object, Refusal};
use crate::validate::name;

/// The operators' endpoints.
pub(crate) fn endpoints(parts: &Arc<Parts>) -> Vec<Endpoint> {
    let serve = |call: AdminCall| {
        let parts = Arc::clone(parts);
        Endpoint::new(subject::admin(call), move |request| {
            let parts = Arc::clone(&parts);
            // Without a seal that opens there is nobody to answer.
            async move { answer(&parts, call, request).await.unwrap_or_default() }
        })
    };
    AdminCall::ALL.iter().copied().map(serve).collect()
}

async fn answer(parts: &Parts, call: AdminCall, request: Bytes) -> Option<Bytes> {
    let OperatorRequest { id, command } = OperatorRequest::decode(request).ok()?;
    let (id, sealed) = (Uuid::try_parse(&id).ok()?, command?);
    let command = Command::decode(parts.opener.seal.open_command(id, &sealed).ok()?).ok()?;
    if command.command_id != id.to_string() || command.method != call.name() {
        return None;
    }
    let answered = match call {
        AdminCall::MintSandboxToken => mint_sandbox_token(parts, command.request, clock::now()).await,
    };
    let outcome = match answered {
        Ok(response) => answer::Outcome::Response(response),
        Err(refusal) => answer::Outcome::Status(status(&refusal)),
    };
    let answer = Answer { command_id: id.to_string(), outcome: Some(outcome), replayed: false };
    let sealed = parts.opener.seal.seal_answer(id, &sealed, &answer.encode_to_vec()).ok()?;
    Some(sealed.encode_to_vec().into())
}

/// A token for the sandbox's present generation.
async fn mint_sandbox_token(parts: &Parts, request: Bytes, now: SystemTime) -> Result<Bytes, Refusal> {
    let request = MintSandboxTokenRequest::decode(request);
    let request = request.map_err(|_| Refusal::invalid("request", "cannot be decoded"))?;
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
