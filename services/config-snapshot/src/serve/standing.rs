//! Whether a sandbox's token counts and who holds its session, for what bridges do by themselves.

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
    let reply = inputs.sandbox.session.map_or_else(StandingReply::default, |session| StandingReply {
        session_id: session.id.to_string(),
        bridge_id: session.bridge_id.to_string(),
    });
    Ok(Answer::Plain(encoded(&reply)))
}
