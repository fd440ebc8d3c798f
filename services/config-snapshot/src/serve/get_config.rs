//! `GetSandboxConfig` of a user: rights, name and inputs in one statement, a fresh build.

use std::sync::Arc;

use roadstead_policy::poll;
use roadstead_proto::internal::ReadRequest;
use roadstead_store::read::Reader;

use super::{Answer, Calls, encoded};
use crate::ask::OfUser;
use crate::refusal::Refusal;

pub(super) async fn answer(calls: Arc<Calls>, request: ReadRequest) -> Result<Answer, Refusal> {
    let ask = OfUser::read(request)?;
    let reader = Reader { subject: ask.subject() };
    let database = calls.builder.database();
    let seen = database.snapshot_inputs_by_name(&ask.workspace, &ask.sandbox, reader).await?;
    ask.judge(seen.access.role, seen.access.workspace.is_some())?;
    let inputs = seen.found.ok_or_else(|| Refusal::not_found("sandbox", &ask.sandbox))?;
    let composed = calls.builder.compose(inputs)?;
    Ok(Answer::Plain(encoded(&poll::config(composed.config))))
}
