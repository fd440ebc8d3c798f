//! `GetSandboxProviderStatus`: what is desired of a provider on a sandbox, composed now, and how much of that its session
//! observes.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use roadstead_proto::api::v1::{
    ConfigComponent, ConfigSnapshotRevision, ConfigUpdateOperation, ConfigUpdateOperationState,
    GetSandboxProviderStatusRequest, GetSandboxProviderStatusResponse, ProviderDesiredIdentity,
    ProviderEnvironmentSnapshot, ProviderMutationKind, ProviderMutationReceipt, ProviderReadinessReason,
    ProviderReadinessStatus, config_snapshot_revision::Component,
};
use roadstead_proto::internal::ReadRequest;
use roadstead_store::inputs::Inputs;
use roadstead_store::read::Reader;
use roadstead_store::view::timestamp;
use roadstead_store::{read, row};
use uuid::Uuid;

use super::{Answer, Calls, encoded};
use crate::ask::OfUser;
use crate::readiness::observed_receipt::ObservedReceipt;
use crate::readiness::{Desired, Heard, Verdict, judge, operation};
use crate::refusal::Refusal;

pub(super) async fn answer(calls: Arc<Calls>, request: ReadRequest) -> Result<Answer, Refusal> {
    let (ask, asked) = OfUser::read_status(request)?;
    let reader = Reader { subject: ask.subject() };
    let database = calls.builder.database();
    let seen = database.snapshot_inputs_by_name(&ask.workspace, &ask.sandbox, reader).await?;
    ask.judge(seen.access.role, seen.access.workspace.is_some())?;
    let inputs = seen.found.ok_or_else(|| Refusal::not_found("sandbox", &ask.sandbox))?;
    let stored = Uuid::try_parse(&asked.receipt_id).ok();
    // Read behind the inputs: what is observed may already be of something newer than they say, never the reverse.
    let read::Readiness { receipt, observation } = database.readiness(inputs.sandbox.id, stored).await?;
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
    let heard = heard(&sandbox, observation.as_ref());
    let verdict = judge(receipt.kind, superseded, &desired, heard);
    calls.builder.metrics().judged(verdict.0);
    let observed = if let Heard::Observed(observed) = heard { Some(observed.clone()) } else { None };
    let told_at = observed.is_some().then(|| observation.as_ref().map(|told| timestamp(told.readiness_at))).flatten();
    let identity = receipt.identity(&sandbox, (!superseded).then_some(&desired));
    let status = ProviderReadinessStatus {
        operation: receipt.operation(&sandbox, verdict, &desired, &identity, told_at),
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

/// What the sandbox's own session said; of any other's nothing counts any more.
fn heard<'a>(sandbox: &row::Sandbox, observation: Option<&'a row::Observation>) -> Heard<'a> {
    let Some(observation) = observation else { return Heard::Never };
    match &sandbox.session {
        None => Heard::Disconnected,
        Some(session) if session.id != observation.session_id => Heard::Nothing,
        Some(_) if !observation.readiness_announced => Heard::Unsupported,
        Some(_) => match (&observation.readiness, observation.readiness_number) {
            (Some(observed), _) => Heard::Observed(observed),
            (None, 0) => Heard::Nothing,
            (None, _) => Heard::Lapsed,
        },
    }
}

/// Why the environment goes without some of the provider's credentials, if it does.
fn withheld(
    provider: Option<&row::Provider>,
    environment: &ProviderEnvironmentSnapshot,
    now: SystemTime,
) -> ProviderReadinessReason {
    let credentials = provider.into_iter().flat_map(|provider| &provider.credentials);
    let missing = credentials.filter(|known| !environment.values.iter().any(|value| value.name == known.key));
    let expired = |known: &row::Credential| known.expires_at.is_some_and(|at| at <= now);
    let (mut any, mut only_expired) = (false, true);
    for known in missing {
        any = true;
        only_expired &= expired(known);
    }
    match (any, only_expired) {
        (false, _) => ProviderReadinessReason::Unspecified,
        (true, true) => ProviderReadinessReason::CredentialExpired,
        (true, false) => ProviderReadinessReason::CredentialsWithheld,
    }
}

/// A receipt, kept or not.
struct Receipt {
    id: String,
    mutation_id: String,
    kind: ProviderMutationKind,
    provider: String,
    provider_id: Uuid,
    provider_version: u64,
    attachment_epoch: Uuid,
    persisted_at: SystemTime,
}

impl Receipt {
    /// The one that is asked about; of a provider alone, one of what is desired now.
    fn find(
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
                Self::observed(observed, attached.map_or(&asked.provider, |provider| &provider.name))
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
        }
    }

    /// Whether something newer is desired by now. Of a provider that is detached its version says nothing any more.
    fn is_superseded(&self, inputs: &Inputs) -> bool {
        let attached = inputs.providers.iter().find(|provider| provider.id == self.provider_id);
        self.attachment_epoch != inputs.sandbox.attachment_epoch
            || attached.is_some_and(|provider| provider.resource_version != self.provider_version)
    }

    /// What it desires. The revisions are those of what is composed now, unless it is not desired any more.
    fn identity(&self, sandbox: &row::Sandbox, desired: Option<&Desired>) -> ProviderDesiredIdentity {
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

    /// How far the update has come. Looking is none.
    fn operation(
        &self,
        sandbox: &row::Sandbox,
        verdict: Verdict,
        desired: &Desired,
        identity: &ProviderDesiredIdentity,
        told_at: Option<prost_types::Timestamp>,
    ) -> Option<ConfigUpdateOperation> {
        if self.kind == ProviderMutationKind::Observe {
            return None;
        }
        let admission = sandbox.status.configuration_admission.as_ref();
        let settled = operation(sandbox.phase, verdict, desired, admission);
        let created = timestamp(self.persisted_at);
        let done = matches!(settled.state, ConfigUpdateOperationState::Applied | ConfigUpdateOperationState::Failed);
        Some(ConfigUpdateOperation {
            operation_id: self.id.clone(),
            sandbox_id: sandbox.id.to_string(),
            component: ConfigComponent::ProviderEnvironment.into(),
            target_revision: Some(ConfigSnapshotRevision {
                component: Some(Component::ProviderTarget(identity.clone())),
            }),
            state: settled.state.into(),
            outcome: settled.outcome.into(),
            sanitized_error: settled.error,
            created_time: Some(created),
            updated_time: Some(told_at.unwrap_or(created)),
            completed_time: told_at.filter(|_| done),
        })
    }

    fn shown(self, sandbox: &row::Sandbox, desired: ProviderDesiredIdentity) -> ProviderMutationReceipt {
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
