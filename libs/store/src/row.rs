//! Rows as the rest of the program sees them. Column names and SQL stay in the table files.

use std::collections::BTreeMap;
use std::time::SystemTime;

use bytes::Bytes;
use roadstead_proto::api::{sandbox::SandboxPolicy, v1};
use uuid::Uuid;

/// String pairs: labels, annotations, provider configuration.
pub type Pairs = BTreeMap<String, String>;

/// A workspace. `terminating_since` set means: no creates, waiting to be empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Workspace {
    pub id: Uuid,
    pub name: String,
    pub labels: Pairs,
    pub resource_version: u64,
    pub created_at: SystemTime,
    pub terminating_since: Option<SystemTime>,
}

/// A member of a workspace, keyed by its subject.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    pub id: Uuid,
    pub workspace_id: Uuid,
    pub subject: String,
    pub role: v1::WorkspaceRole,
    pub resource_version: u64,
    pub created_at: SystemTime,
}

/// One credential of a provider; the value is encrypted under the credential key.
#[derive(Clone, Debug, PartialEq)]
pub struct Credential {
    pub key: String,
    pub sealed_value: Bytes,
    pub expires_at: Option<SystemTime>,
}

/// A provider with its credentials, ordered by key.
#[derive(Clone, Debug, PartialEq)]
pub struct Provider {
    pub id: Uuid,
    pub workspace_id: Uuid,
    pub name: String,
    pub kind: String,
    pub profile_workspace: String,
    pub config: Pairs,
    pub credentials: Vec<Credential>,
    pub labels: Pairs,
    pub annotations: Pairs,
    pub resource_version: u64,
    pub created_at: SystemTime,
}

/// The live session of a sandbox, as its row knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    pub id: Uuid,
    pub bridge_id: Uuid,
    pub instance_id: String,
    pub connection_epoch: u64,
    pub config_push: bool,
    /// Highest result number applied; 0 at registration.
    pub result_number: u64,
    /// Highest end number applied; 0 at registration.
    pub end_number: u64,
}

/// A sandbox. `status` holds what no statement decides on; phase and policy version are columns and win over it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sandbox {
    pub id: Uuid,
    pub workspace_id: Uuid,
    pub workspace_name: String,
    pub name: String,
    pub labels: Pairs,
    pub annotations: Pairs,
    pub resource_version: u64,
    pub created_at: SystemTime,
    pub deletion_at: Option<SystemTime>,
    /// Without `providers` and `provider_attachment_epoch`, which are rows and a column.
    pub spec: v1::SandboxSpec,
    /// The template it was made from, as that was then. No update writes it.
    pub created_from: Option<v1::SandboxWorkloadTemplateProvenance>,
    pub status: v1::SandboxStatus,
    pub phase: v1::SandboxPhase,
    pub current_policy_version: u32,
    pub attachment_epoch: Uuid,
    /// Runtime generation; a token of another one is refused.
    pub generation: u64,
    /// When its phase ends by itself: the window for connecting and accepting while PROVISIONING or STARTING, the pause
    /// before a restart while ERROR or COMPLETED. None: it does not.
    pub deadline: Option<SystemTime>,
    /// Content whose rejection has been granted time for repair in this attempt; empty if none was.
    pub refused_content: String,
    /// Instance that registered last: the fence of configuration reports, part of the snapshot.
    pub configuration_instance_id: String,
    pub session: Option<Session>,
    /// Names of attached providers in order of attachment.
    pub providers: Vec<String>,
}

/// A workload template. It never changes.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadTemplate {
    pub id: Uuid,
    pub workspace_id: Uuid,
    pub workspace_name: String,
    pub name: String,
    pub labels: Pairs,
    pub annotations: Pairs,
    pub resource_version: u64,
    pub created_at: SystemTime,
    pub spec: v1::SandboxWorkloadTemplateSpec,
}

/// A service that a sandbox exposes.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceEndpoint {
    pub id: Uuid,
    pub sandbox_id: Uuid,
    pub workspace_name: String,
    pub sandbox_name: String,
    /// Empty for the sandbox's one service without a name.
    pub service: String,
    pub target_port: u16,
    pub authorization_mode: v1::ServiceAuthorizationMode,
    pub resource_version: u64,
    pub created_at: SystemTime,
}

impl ServiceEndpoint {
    /// Its name as an object.
    #[must_use]
    pub fn name(&self) -> String {
        service_name(&self.sandbox_name, &self.service)
    }
}

/// The name of a sandbox's service as an object, which tells it apart in its workspace: names hold no double hyphen.
#[must_use]
pub fn service_name(sandbox: &str, service: &str) -> String {
    if service.is_empty() { sandbox.to_owned() } else { format!("{sandbox}--{service}") }
}

/// The receipt of a change of a provider: what one sandbox is to have of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderReceipt {
    pub id: Uuid,
    pub sandbox_id: Uuid,
    /// The change; an update of a provider has a receipt for each of its sandboxes.
    pub mutation_id: Uuid,
    pub kind: v1::ProviderMutationKind,
    pub provider_id: Uuid,
    pub provider_name: String,
    pub provider_version: u64,
    /// The sandbox's, after the change.
    pub attachment_epoch: Uuid,
    pub persisted_at: SystemTime,
    pub completion: Completion,
}

/// How far the operation behind a receipt has come. Only what is PENDING ever changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    pub state: v1::ConfigUpdateOperationState,
    /// The supervisor's word, if that ended it.
    pub outcome: v1::ConfigApplyOutcome,
    /// Bounded, and without control characters.
    pub error: String,
    /// None while it is PENDING.
    pub at: Option<SystemTime>,
}

impl Completion {
    /// Nothing is known yet.
    #[must_use]
    pub const fn pending() -> Self {
        let (state, outcome) = (v1::ConfigUpdateOperationState::Pending, v1::ConfigApplyOutcome::Unspecified);
        Self { state, outcome, error: String::new(), at: None }
    }
}

/// What the newest session of a sandbox said of itself. Of another session than the sandbox's it says nothing any more.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    pub sandbox_id: Uuid,
    pub session_id: Uuid,
    /// Whether its supervisor observes the readiness of providers.
    pub readiness_announced: bool,
    /// Highest number applied; 0 at registration.
    pub readiness_number: u64,
    /// None before the first, and while what was said is too old to count.
    pub readiness: Option<v1::ProviderReadinessObservation>,
    pub readiness_at: SystemTime,
    /// Highest sequence of a report on endpoints; 0 at registration.
    pub endpoint_sequence: u64,
}

/// One revision of a policy; `scope` is a sandbox, or none for the global history.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyRevision {
    pub scope: Option<Uuid>,
    pub version: u32,
    pub hash: String,
    pub policy: SandboxPolicy,
    pub status: v1::PolicyStatus,
    pub load_error: String,
    pub created_at: SystemTime,
    pub loaded_at: Option<SystemTime>,
    pub provenance: Pairs,
}

/// The settings of one scope.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// 0 if never written.
    pub revision: u64,
    pub values: BTreeMap<String, roadstead_proto::api::sandbox::SettingValue>,
}

/// A row of the outbox: an object that a committed transaction changed.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboxRow {
    pub id: i64,
    pub mark: roadstead_proto::subject::Changed,
    /// Whether the change concerns configuration, not mere status.
    pub configuration: bool,
    pub traceparent: String,
}
