//! Whether a sandbox's token counts and who holds its session, for what bridges do by themselves.

use std::sync::Arc;

use roadstead_proto::internal::{ReadRequest, StandingReply, StandingRequest};
use roadstead_service_kit::clock;
use uuid::Uuid;

use super::{Answer, Calls, encoded};
use crate::ask::OfSandbox;
use crate::refusal::Refusal;

pub(super) async fn answer(calls: Arc<Calls>, request: ReadRequest) -> Result<Answer, Refusal> {
    let ask = OfSandbox::<StandingRequest>::read(request, &calls.tokens, clock::now())?;
    let found = calls.builder.database().standing(ask.identity.sandbox_id).await?;
    let standing = found.ok_or_else(|| Refusal::not_found("sandbox", ask.identity.sandbox_id.to_string()))?;
    ask.judge(standing.generation)?;
    let text = |id: Option<Uuid>| id.map(|id| id.to_string()).unwrap_or_default();
    let reply = StandingReply { session_id: text(standing.session_id), bridge_id: text(standing.bridge_id) };
    Ok(Answer::Plain(encoded(&reply)))
}
