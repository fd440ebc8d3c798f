//! Whether a sandbox's token counts, for what a bridge does by itself.

use std::sync::Arc;

use roadstead_proto::internal::{ReadRequest, StandingReply, StandingRequest};
use roadstead_service_kit::clock;

use super::{Answer, Calls, encoded};
use crate::ask::OfSandbox;
use crate::refusal::Refusal;

pub(super) async fn answer(calls: Arc<Calls>, request: ReadRequest) -> Result<Answer, Refusal> {
    let ask = OfSandbox::<StandingRequest>::read(request, &calls.tokens, clock::now())?;
    let found = calls.builder.database().snapshot_inputs(ask.identity.sandbox_id).await?;
    let inputs = found.ok_or_else(|| Refusal::not_found("sandbox", ask.identity.sandbox_id.to_string()))?;
    ask.judge(inputs.sandbox.generation)?;
    Ok(Answer::Plain(encoded(&StandingReply {})))
}
