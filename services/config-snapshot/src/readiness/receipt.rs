//! What is asked about: the receipt of a change, or one of looking.

use std::time::{Duration, SystemTime};

use roadstead_proto::api::v1::{
    ConfigComponent, ConfigSnapshotRevision, ConfigUpdateOperation, GetSandboxProviderStatusRequest,
    ProviderDesiredIdentity, ProviderMutationKind, ProviderMutationReceipt, config_snapshot_revision::Component,
};
use roadstead_store::inputs::Inputs;
use roadstead_store::row;
use roadstead_store::view::timestamp;
use uuid::Uuid;

use super::Desired;
use super::observed_receipt::ObservedReceipt;
use crate::refusal::Refusal;

/// A receipt, kept or not.
pub(crate) struct Receipt {
    id: String,
    mutation_id: String,
    pub(crate) kind: ProviderMutationKind,
    provider: String,
    pub(crate) provider_id: Uuid,
    provider_version: u64,
    attachment_epoch: Uuid,
    persisted_at: SystemTime,
    /// None: nothing was changed.
    completion: Option<row::Completion>,
}

impl Receipt {
    /// The one that is asked about; of a provider alone, one of what is desired now.
    ///
    /// # Errors
    /// `NotFound`: there is none, or it is another sandbox's or provider's.
    pub(crate) fn find(
        asked: &GetSandboxProviderStatusRequest,
        stored: Option<row::ProviderReceipt>,
        inputs: &Inputs,
    ) -> Result<Self, Refusal> {
        let missing = || Refusal::not_found("receipt", &asked.receipt_id);
        if asked.receipt_id.is_empty() {
            return Self::of_now(&asked.provider, inputs);
        }
        let receipt = match stored {
            Some(stored) => Self::stored(stored),
            None => {
                let observed = ObservedReceipt::parse(&asked.receipt_id);
                let observed = observed.filter(|observed| observed.sandbox_id == inputs.sandbox.id);
                let observed = observed.ok_or_else(missing)?;
                let attached = inputs.providers.iter().find(|provider| provider.id == observed.provider_id);
                // One that is detached has no name here any more, so whoever names it does not find it.
                Self::observed(observed, attached.map_or("", |provider| &provider.name))
            }
        };
        if asked.provider.is_empty() || asked.provider == receipt.provider { Ok(receipt) } else { Err(missing()) }
    }

    fn of_now(name: &str, inputs: &Inputs) -> Result<Self, Refusal> {
        let attached = inputs.providers.iter().find(|provider| provider.name == name);
        let provider = attached.ok_or_else(|| Refusal::not_found("attached provider", name))?;
        let since = inputs.now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let observed = ObservedReceipt {
            sandbox_id: inputs.sandbox.id,
            provider_id: provider.id,
            provider_version: provider.resource_version,
            attachment_epoch: inputs.sandbox.attachment_epoch,
            at: SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(since.as_millis()).unwrap_or_default()),
        };
        Ok(Self::observed(observed, &provider.name))
    }

    fn observed(observed: ObservedReceipt, provider: &str) -> Self {
        Self {
            id: observed.id(),
            mutation_id: String::new(),
            kind: ProviderMutationKind::Observe,
            provider: provider.to_owned(),
            provider_id: observed.provider_id,
            provider_version: observed.provider_version,
            attachment_epoch: observed.attachment_epoch,
            persisted_at: observed.at,
            completion: None,
        }
    }

    fn stored(row: row::ProviderReceipt) -> Self {
        Self {
            id: row.id.to_string(),
            mutation_id: row.mutation_id.to_string(),
            kind: row.kind,
            provider: row.provider_name,
            provider_id: row.provider_id,
            provider_version: row.provider_version,
            attachment_epoch: row.attachment_epoch,
            persisted_at: row.persisted_at,
            completion: Some(row.completion),
        }
    }

    /// Whether something newer is desired by now. Of a provider that is detached its version says nothing any more.
    pub(crate) fn is_superseded(&self, inputs: &Inputs) -> bool {
        let attached = inputs.providers.iter().find(|provider| provider.id == self.provider_id);
        self.attachment_epoch != inputs.sandbox.attachment_epoch
            || attached.is_some_and(|provider| provider.resource_version != self.provider_version)
    }

    /// What it desires. The revisions are those of what is composed now, unless it is not desired any more.
    pub(crate) fn identity(&self, sandbox: &row::Sandbox, desired: Option<&Desired>) -> ProviderDesiredIdentity {
        let composed = desired.cloned().unwrap_or_default();
        ProviderDesiredIdentity {
            sandbox_id: sandbox.id.to_string(),
            sandbox: sandbox.name.clone(),
            attachment_epoch: self.attachment_epoch.to_string(),
            provider_id: self.provider_id.to_string(),
            provider_resource_version: self.provider_version,
            provider_env_revision: composed.provider_env_revision,
            config_revision: composed.config_revision,
            policy_hash: composed.policy_hash,
        }
    }

    /// How far the update has come, as it is kept. Looking is none.
    pub(crate) fn operation(&self, identity: &ProviderDesiredIdentity) -> Option<ConfigUpdateOperation> {
        let row::Completion { state, outcome, error, at } = self.completion.clone()?;
        let created = timestamp(self.persisted_at);
        let completed = at.map(timestamp);
        Some(ConfigUpdateOperation {
            operation_id: self.id.clone(),
            sandbox_id: identity.sandbox_id.clone(),
            component: ConfigComponent::ProviderEnvironment.into(),
            target_revision: Some(ConfigSnapshotRevision {
                component: Some(Component::ProviderTarget(identity.clone())),
            }),
            state: state.into(),
            outcome: outcome.into(),
            sanitized_error: error,
            created_time: Some(created),
            updated_time: Some(completed.unwrap_or(created)),
            completed_time: completed,
        })
    }

    pub(crate) fn shown(self, sandbox: &row::Sandbox, desired: ProviderDesiredIdentity) -> ProviderMutationReceipt {
        ProviderMutationReceipt {
            receipt_id: self.id,
            mutation_id: self.mutation_id,
            provider: self.provider,
            workspace: sandbox.workspace_name.clone(),
            kind: self.kind.into(),
            desired: Some(desired),
            persisted_time: Some(timestamp(self.persisted_at)),
        }
    }
}
