//! `GetSandboxConfig` of a user: rights, name and inputs in one statement, a fresh build.

use std::sync::Arc;

use roadstead_policy::poll;
use roadstead_proto::internal::ReadRequest;

use super::{Answer, Calls, encoded};
use crate::ask::OfUser;
use crate::refusal::Refusal;

pub(super) async fn answer(calls: Arc<Calls>, request: ReadRequest) -> Result<Answer, Refusal> {
    let ask = OfUser::read(request)?;
    let seen = calls.builder.inputs_by_name(ask.named()).await?;
    ask.judge(seen.access.role, seen.access.workspace.is_some())?;
    let inputs = seen.found.ok_or_else(|| Refusal::not_found("sandbox", &ask.sandbox))?;
    let composed = calls.builder.compose(inputs)?;
    Ok(Answer::Plain(encoded(&poll::config(composed.config))))
}
