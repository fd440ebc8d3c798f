//! What attaching and detaching share, and the receipt of a change that a sandbox will see.

use std::time::SystemTime;

use roadstead_policy::environment;
use roadstead_proto::api::v1::{ConfigUpdateOperationState as Operation, ProviderMutationKind};
use roadstead_store::mutation::Loaded;
use roadstead_store::{row, view::timestamp};
use uuid::Uuid;

use super::completion;
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

/// The newest receipt, if it is of what the sandbox is to have of that provider now: what changes nothing needs no
/// other, however often it is asked for. One that ended without success is none: it may come to another end now.
pub(crate) fn standing_receipt(
    loaded: &Loaded,
    sandbox: &row::Sandbox,
    provider: &row::Provider,
) -> Option<row::ProviderReceipt> {
    let same = |known: &&row::ProviderReceipt| {
        known.sandbox_id == sandbox.id
            && known.provider_id == provider.id
            && known.provider_version == provider.resource_version
            && known.attachment_epoch == sandbox.attachment_epoch
            && matches!(known.completion.state, Operation::Pending | Operation::Applied)
    };
    loaded.receipt.as_ref().filter(same).cloned()
}

/// The receipt of a change: what this sandbox is to have of that provider. `changed`: it was otherwise before.
pub(crate) fn receipt(
    kind: ProviderMutationKind,
    mutation_id: Uuid,
    sandbox: &row::Sandbox,
    provider: &row::Provider,
    changed: bool,
    loaded: &Loaded,
    context: &Context<'_>,
) -> row::ProviderReceipt {
    row::ProviderReceipt {
        id: context.ids.fresh(),
        sandbox_id: sandbox.id,
        mutation_id,
        kind,
        provider_id: provider.id,
        provider_name: provider.name.clone(),
        provider_version: provider.resource_version,
        attachment_epoch: sandbox.attachment_epoch,
        persisted_at: loaded.now,
        completion: completion::at_creation(sandbox, changed, loaded),
    }
}
