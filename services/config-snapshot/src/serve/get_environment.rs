//! `GetSandboxProviderEnvironment`: the environment of the caller's own sandbox, shaped by what the supervisor can
//! deal with, encrypted for the bridge.

use std::sync::Arc;

use prost::Message as _;
use roadstead_policy::poll;
use roadstead_proto::api::v1::GetSandboxProviderEnvironmentRequest;
use roadstead_proto::internal::ReadRequest;
use roadstead_service_kit::clock;
use zeroize::Zeroizing;

use super::{Answer, Calls};
use crate::ask::OfSandbox;
use crate::refusal::Refusal;

pub(super) async fn answer(calls: Arc<Calls>, request: ReadRequest) -> Result<Answer, Refusal> {
    let ask = OfSandbox::<GetSandboxProviderEnvironmentRequest>::read(request, &calls.tokens, clock::now())?;
    let found = calls.builder.inputs(ask.identity.sandbox_id).await?;
    let inputs = found.ok_or_else(|| Refusal::not_found("sandbox", ask.identity.sandbox_id.to_string()))?;
    ask.judge(inputs.sandbox.generation)?;
    let composed = calls.builder.compose(inputs)?;
    let environment = poll::environment(composed.environment, (&ask.asked).into());
    let plaintext = Zeroizing::new(environment.encode_to_vec());
    Ok(Answer::Secret(calls.cipher.encrypt(ask.identity.sandbox_id.as_bytes(), &plaintext).into()))
}
