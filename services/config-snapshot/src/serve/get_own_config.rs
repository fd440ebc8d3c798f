//! `GetSandboxConfig` of a supervisor: its own sandbox, which its token names.

use std::sync::Arc;

use roadstead_policy::poll;
use roadstead_proto::api::sandbox::GetSandboxConfigRequest;
use roadstead_proto::internal::ReadRequest;
use roadstead_service_kit::clock;

use super::{Answer, Calls, encoded};
use crate::ask::OfSandbox;
use crate::refusal::Refusal;

pub(super) async fn answer(calls: Arc<Calls>, request: ReadRequest) -> Result<Answer, Refusal> {
    let ask = OfSandbox::<GetSandboxConfigRequest>::read(request, &calls.tokens, clock::now())?;
    let found = calls.builder.inputs(ask.identity.sandbox_id).await?;
    let inputs = found.ok_or_else(|| Refusal::not_found("sandbox", ask.identity.sandbox_id.to_string()))?;
    ask.judge(inputs.sandbox.generation)?;
    ask.judge_name(&inputs.sandbox.workspace_name, &inputs.sandbox.name)?;
    let composed = calls.builder.compose(inputs)?;
    Ok(Answer::Plain(encoded(&poll::config(composed.config))))
}
