//! `GetSandboxProviderStatus`: what is desired of a provider on a sandbox, composed now, and how much of that its session
//! observes.

use std::sync::Arc;

use roadstead_proto::api::v1::{GetSandboxProviderStatusResponse, ProviderReadinessStatus};
use roadstead_proto::internal::ReadRequest;
use roadstead_store::read::Readiness;
use roadstead_store::view::timestamp;
use uuid::Uuid;

use super::{Answer, Calls, encoded};
use crate::ask::OfUser;
use crate::readiness::receipt::Receipt;
use crate::readiness::{Desired, Heard, judge, withheld};
use crate::refusal::Refusal;

pub(super) async fn answer(calls: Arc<Calls>, request: ReadRequest) -> Result<Answer, Refusal> {
    let (ask, asked) = OfUser::read_status(request)?;
    let seen = calls.builder.inputs_by_name(ask.named()).await?;
    ask.judge(seen.access.role, seen.access.workspace.is_some())?;
    let inputs = seen.found.ok_or_else(|| Refusal::not_found("sandbox", &ask.sandbox))?;
    let stored = Uuid::try_parse(&asked.receipt_id).ok();
    // Read behind the inputs: what is observed may already be of something newer than they say, never the reverse.
    let Readiness { receipt, observation } = calls.builder.database().readiness(inputs.sandbox.id, stored).await?;
    let receipt = Receipt::find(&asked, receipt, &inputs)?;
    let sandbox = inputs.sandbox.clone();
    let now = inputs.now;
    let superseded = receipt.is_superseded(&inputs);
    let provider = inputs.providers.iter().find(|provider| provider.id == receipt.provider_id).cloned();
    let composed = calls.builder.compose(inputs)?;
    let withheld = withheld(provider.as_ref(), &composed.environment, now);
    let desired = Desired {
        attachment_epoch: composed.config.provider_attachment_epoch,
        provider_env_revision: composed.config.provider_env_revision,
        config_revision: composed.config.config_revision,
        policy_hash: composed.config.policy_hash,
        withheld,
    };
    let heard = Heard::of(&sandbox, observation.as_ref());
    let verdict = judge(receipt.kind, superseded, &desired, heard);
    calls.builder.metrics().judged(verdict.0);
    let observed = if let Heard::Observed(observed) = heard { Some(observed.clone()) } else { None };
    let told_at = observed.is_some().then(|| observation.as_ref().map(|told| timestamp(told.readiness_at))).flatten();
    let identity = receipt.identity(&sandbox, (!superseded).then_some(&desired));
    let status = ProviderReadinessStatus {
        operation: receipt.operation(&identity),
        receipt: Some(receipt.shown(&sandbox, identity)),
        state: verdict.0.into(),
        reason: verdict.1.into(),
        observed,
        network_instance_id: String::new(),
        observed_time: told_at,
        evaluated_time: Some(timestamp(now)),
    };
    Ok(Answer::Plain(encoded(&GetSandboxProviderStatusResponse { status: Some(status) })))
}
