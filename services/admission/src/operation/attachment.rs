//! What attaching and detaching share, and the receipt of a change that a sandbox will see.

use roadstead_policy::environment;
use roadstead_proto::api::v1::{ProviderDesiredIdentity, ProviderMutationKind, ProviderMutationReceipt};
use roadstead_store::{row, view::timestamp};
use std::time::SystemTime;

use crate::context::Context;
use crate::phase::change_id;
use crate::refusal::Refusal;

/// All keys that a provider may bring into an environment.
pub(crate) fn keys(provider: &row::Provider) -> impl Iterator<Item = &str> {
    provider
        .credentials
        .iter()
        .map(|credential| credential.key.as_str())
        .chain(provider.config.keys().map(String::as_str))
}

/// Refuses providers of which two would set the same variable.
///
/// # Errors
/// `Precondition` that names the variable.
pub(crate) fn compatible<'a>(providers: impl IntoIterator<Item = &'a row::Provider>) -> Result<(), Refusal> {
    Ok(environment::check_unique(providers.into_iter().map(keys))?)
}

/// Notes on a sandbox that its attachments changed.
pub(crate) fn changed(row: &mut row::Sandbox, cause: &str, now: SystemTime, context: &Context<'_>) {
    row.attachment_epoch = context.ids.fresh();
    let provisioning = row.status.provisioning.get_or_insert_default();
    provisioning.attachment_change_id = change_id(cause, context.ids.fresh());
    provisioning.attachment_change_time = Some(timestamp(now));
    provisioning.configuration_change_id = provisioning.attachment_change_id.clone();
    provisioning.configuration_change_time = provisioning.attachment_change_time;
}

/// The receipt of a change: what this sandbox is to have of that provider. The revisions of the composed
/// configuration are not known where the change is written, so they stay 0.
pub(crate) fn receipt(
    kind: ProviderMutationKind,
    mutation_id: &str,
    sandbox: &row::Sandbox,
    provider: &row::Provider,
    now: SystemTime,
    context: &Context<'_>,
) -> ProviderMutationReceipt {
    ProviderMutationReceipt {
        receipt_id: context.ids.fresh().to_string(),
        mutation_id: mutation_id.to_owned(),
        provider: provider.name.clone(),
        workspace: sandbox.workspace_name.clone(),
        kind: kind.into(),
        desired: Some(ProviderDesiredIdentity {
            sandbox_id: sandbox.id.to_string(),
            sandbox: sandbox.name.clone(),
            attachment_epoch: sandbox.attachment_epoch.to_string(),
            provider_id: provider.id.to_string(),
            provider_resource_version: provider.resource_version,
            ..Default::default()
        }),
        persisted_time: Some(timestamp(now)),
    }
}
