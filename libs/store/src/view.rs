//! Rows as the public API shows them. Pure, and the only place where a secret could leave a row: credentials keep
//! their keys and lose their values here.

use std::time::SystemTime;

use prost_types::Timestamp;
use roadstead_proto::api::{datamodel, v1};

use crate::row;

/// Stands for every credential value in an answer.
pub const REDACTED: &str = "REDACTED";

/// A workspace.
#[must_use]
pub fn workspace(row: &row::Workspace) -> datamodel::Workspace {
    let phase = match row.terminating_since {
        None => datamodel::WorkspacePhase::Active,
        Some(_) => datamodel::WorkspacePhase::Terminating,
    };
    datamodel::Workspace {
        metadata: Some(datamodel::ObjectMeta {
            id: row.id.to_string(),
            name: row.name.clone(),
            labels: row.labels.clone(),
            resource_version: row.resource_version,
            created_time: Some(timestamp(row.created_at)),
            deletion_time: row.terminating_since.map(timestamp),
            ..Default::default()
        }),
        status: Some(datamodel::WorkspaceStatus { phase: phase.into() }),
    }
}

/// A member of the workspace with that name.
#[must_use]
pub fn member(row: &row::Member, workspace: &str) -> v1::WorkspaceMember {
    v1::WorkspaceMember {
        metadata: Some(datamodel::ObjectMeta {
            id: row.id.to_string(),
            name: row.subject.clone(),
            resource_version: row.resource_version,
            created_time: Some(timestamp(row.created_at)),
            workspace: workspace.to_owned(),
            ..Default::default()
        }),
        principal_subject: row.subject.clone(),
        role: row.role.into(),
    }
}

/// A provider of the workspace with that name. Its credentials keep their keys only.
#[must_use]
pub fn provider(row: &row::Provider, workspace: &str) -> datamodel::Provider {
    let expiration = |credential: &row::Credential| {
        credential.expires_at.map(|expires_at| (credential.key.clone(), timestamp(expires_at)))
    };
    datamodel::Provider {
        metadata: Some(datamodel::ObjectMeta {
            id: row.id.to_string(),
            name: row.name.clone(),
            labels: row.labels.clone(),
            resource_version: row.resource_version,
            annotations: row.annotations.clone(),
            workspace: workspace.to_owned(),
            created_time: Some(timestamp(row.created_at)),
            deletion_time: None,
        }),
        r#type: row.kind.clone(),
        credentials: row.credentials.iter().map(|known| (known.key.clone(), REDACTED.to_owned())).collect(),
        config: row.config.clone(),
        profile_workspace: row.profile_workspace.clone(),
        credential_handles: Default::default(),
        credential_expiration_times: row.credentials.iter().filter_map(expiration).collect(),
    }
}

/// A workload template.
#[must_use]
pub fn template(row: &row::WorkloadTemplate) -> v1::SandboxWorkloadTemplate {
    v1::SandboxWorkloadTemplate {
        metadata: Some(datamodel::ObjectMeta {
            id: row.id.to_string(),
            name: row.name.clone(),
            labels: row.labels.clone(),
            resource_version: row.resource_version,
            annotations: row.annotations.clone(),
            workspace: row.workspace_name.clone(),
            created_time: Some(timestamp(row.created_at)),
            deletion_time: None,
        }),
        spec: Some(row.spec.clone()),
    }
}

/// A service, with the label that names its sandbox.
#[must_use]
pub fn service(row: &row::ServiceEndpoint) -> v1::ServiceEndpoint {
    v1::ServiceEndpoint {
        metadata: Some(datamodel::ObjectMeta {
            id: row.id.to_string(),
            name: row.name(),
            labels: [("sandbox".to_owned(), row.sandbox_name.clone())].into(),
            resource_version: row.resource_version,
            workspace: row.workspace_name.clone(),
            created_time: Some(timestamp(row.created_at)),
            ..Default::default()
        }),
        sandbox_id: row.sandbox_id.to_string(),
        sandbox: row.sandbox_name.clone(),
        name: row.service.clone(),
        target_port: row.target_port.into(),
        // Every service has a name of its own in the domain.
        domain: true,
        authorization_mode: row.authorization_mode.into(),
    }
}

/// A sandbox with its attachments. Columns win over what the stored status says.
#[must_use]
pub fn sandbox(row: &row::Sandbox) -> v1::Sandbox {
    v1::Sandbox {
        metadata: Some(datamodel::ObjectMeta {
            id: row.id.to_string(),
            name: row.name.clone(),
            labels: row.labels.clone(),
            resource_version: row.resource_version,
            annotations: row.annotations.clone(),
            workspace: row.workspace_name.clone(),
            created_time: Some(timestamp(row.created_at)),
            deletion_time: row.deletion_at.map(timestamp),
        }),
        spec: Some(v1::SandboxSpec {
            providers: row.providers.clone(),
            provider_attachment_epoch: row.attachment_epoch.to_string(),
            ..row.spec.clone()
        }),
        status: Some(v1::SandboxStatus {
            phase: row.phase.into(),
            current_policy_version: row.current_policy_version,
            ..row.status.clone()
        }),
        created_from_workload_template: row.created_from.clone(),
        ..Default::default()
    }
}

/// The receipt of a change of a provider, with what is desired of it as far as the change says: the revisions of the
/// composed configuration are not the change's.
#[must_use]
pub fn provider_receipt(row: &row::ProviderReceipt, sandbox: &str, workspace: &str) -> v1::ProviderMutationReceipt {
    v1::ProviderMutationReceipt {
        receipt_id: row.id.to_string(),
        mutation_id: row.mutation_id.to_string(),
        provider: row.provider_name.clone(),
        workspace: workspace.to_owned(),
        kind: row.kind.into(),
        desired: Some(v1::ProviderDesiredIdentity {
            sandbox_id: row.sandbox_id.to_string(),
            sandbox: sandbox.to_owned(),
            attachment_epoch: row.attachment_epoch.to_string(),
            provider_id: row.provider_id.to_string(),
            provider_resource_version: row.provider_version,
            ..Default::default()
        }),
        persisted_time: Some(timestamp(row.persisted_at)),
    }
}

/// A revision of a policy; lists show revisions without their bodies.
#[must_use]
pub fn policy_revision(row: &row::PolicyRevision, with_policy: bool) -> v1::SandboxPolicyRevision {
    v1::SandboxPolicyRevision {
        version: row.version,
        policy_hash: row.hash.clone(),
        status: row.status.into(),
        load_error: row.load_error.clone(),
        policy: with_policy.then(|| row.policy.clone()),
        provenance: row.provenance.clone(),
        created_time: Some(timestamp(row.created_at)),
        loaded_time: row.loaded_at.map(timestamp),
    }
}

/// A point in time as the API writes it.
#[must_use]
pub fn timestamp(at: SystemTime) -> Timestamp {
    Timestamp::from(at)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use uuid::Uuid;

    use super::*;

    fn credential(key: &str, expires_at: Option<SystemTime>) -> row::Credential {
        row::Credential { key: key.into(), sealed_value: Bytes::from_static(b"hush"), expires_at }
    }

    #[test]
    fn a_provider_shows_the_keys_of_its_credentials_and_no_value() {
        let expiry = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
        let row = row::Provider {
            id: Uuid::from_u128(1),
            workspace_id: Uuid::from_u128(2),
            name: "p".into(),
            kind: "generic".into(),
            profile_workspace: String::new(),
            config: [("region".to_owned(), "north".to_owned())].into(),
            credentials: vec![credential("A", None), credential("B", Some(expiry))],
            labels: row::Pairs::new(),
            annotations: row::Pairs::new(),
            resource_version: 3,
            created_at: SystemTime::UNIX_EPOCH,
        };
        let shown = provider(&row, "w");
        assert_eq!(shown.credentials, [("A".into(), REDACTED.into()), ("B".into(), REDACTED.into())].into());
        assert_eq!(shown.credential_expiration_times, [("B".into(), timestamp(expiry))].into());
        assert_eq!(shown.config["region"], "north");
        assert!(!prost::Message::encode_to_vec(&shown).windows(4).any(|bytes| bytes == b"hush"));
    }

    #[test]
    fn a_workspace_with_a_deletion_time_is_terminating() {
        let mut row = row::Workspace {
            id: Uuid::from_u128(1),
            name: "w".into(),
            labels: row::Pairs::new(),
            resource_version: 1,
            created_at: SystemTime::UNIX_EPOCH,
            terminating_since: None,
        };
        assert_eq!(workspace(&row).status.unwrap_or_default().phase(), datamodel::WorkspacePhase::Active);
        row.terminating_since = Some(SystemTime::UNIX_EPOCH);
        let shown = workspace(&row);
        assert_eq!(shown.status.unwrap_or_default().phase(), datamodel::WorkspacePhase::Terminating);
        assert!(shown.metadata.unwrap_or_default().deletion_time.is_some());
    }
}
