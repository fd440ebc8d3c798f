//! `Bootstrap`: the entry that stands, built anew if it is out of date. What a session gets first is an accepted
//! entry like all that follow.

use std::sync::Arc;

use roadstead_proto::internal::{BootstrapReply, BootstrapRequest, ReadRequest};
use roadstead_service_kit::clock;

use super::{Answer, Calls, encoded};
use crate::ask::OfSandbox;
use crate::build::Standing;
use crate::refusal::Refusal;

pub(super) async fn answer(calls: Arc<Calls>, request: ReadRequest) -> Result<Answer, Refusal> {
    let traceparent = request.traceparent.clone();
    let ask = OfSandbox::<BootstrapRequest>::read(request, &calls.tokens, clock::now())?;
    match calls.builder.refresh(ask.identity.sandbox_id, &traceparent).await? {
        Standing::Gone => Err(Refusal::not_found("sandbox", ask.identity.sandbox_id.to_string())),
        Standing::Entry { entry, generation } => {
            ask.judge(generation)?;
            Ok(Answer::Plain(encoded(&BootstrapReply { entry: Some(*entry) })))
        }
    }
}
