//! Values for tests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use roadstead_proto::api::v1::{self, SandboxPhase};
use roadstead_proto::internal;
use roadstead_store::mutation::Loaded;
use roadstead_store::row::{self, Pairs};
use uuid::Uuid;

use crate::caller::Caller;
use crate::context::{Context, Ids, Rules, Vault};
use crate::phase::{self, At, Why};

/// The clock of the tests.
pub(crate) const NOW: SystemTime = SystemTime::UNIX_EPOCH;

/// Ids that count up.
#[derive(Debug, Default)]
pub(crate) struct CountedIds(AtomicU64);

impl Ids for CountedIds {
    fn fresh(&self) -> Uuid {
        Uuid::from_u128(0xF000_0000 + u128::from(self.0.fetch_add(1, Ordering::Relaxed)))
    }
}

/// Shows that a value passed through, and how long it was.
#[derive(Debug)]
pub(crate) struct PaperVault;

impl Vault for PaperVault {
    fn seal(&self, provider_id: Uuid, value: &str) -> Bytes {
        format!("sealed:{provider_id}:{}", value.len()).into()
    }

    fn length(&self, sealed: &Bytes) -> usize {
        sealed.len()
    }
}

/// Everything that a context borrows.
pub(crate) struct World {
    pub(crate) ids: CountedIds,
    pub(crate) rules: Rules,
    pub(crate) caller: Caller,
}

impl World {
    pub(crate) fn of(caller: Caller) -> Self {
        Self { ids: CountedIds::default(), rules: Rules::default(), caller }
    }

    pub(crate) fn user() -> Self {
        Self::of(Caller::User(user("ann", false)))
    }

    pub(crate) fn admin() -> Self {
        Self::of(Caller::User(user("root", true)))
    }

    pub(crate) fn sandbox() -> Self {
        Self::of(Caller::Sandbox { id: Uuid::from_u128(30), generation: 1 })
    }

    pub(crate) fn context(&self) -> Context<'_> {
        Context { caller: &self.caller, ids: &self.ids, vault: &PaperVault, rules: &self.rules, naming: [1; 32] }
    }
}

pub(crate) fn user(subject: &str, platform_admin: bool) -> internal::User {
    internal::User { provider: "local_dev".into(), subject: subject.into(), platform_admin, ..Default::default() }
}

/// What a first flight finds when it finds nothing.
pub(crate) fn nothing() -> Loaded {
    Loaded::nothing(NOW)
}

/// What a first flight finds in the workspace `w`.
pub(crate) fn in_workspace() -> Loaded {
    Loaded { workspace: Some(workspace("w")), role: Some(v1::WorkspaceRole::Admin), ..nothing() }
}

pub(crate) fn workspace(name: &str) -> row::Workspace {
    row::Workspace {
        id: Uuid::from_u128(10),
        name: name.into(),
        labels: Pairs::new(),
        resource_version: 1,
        created_at: NOW,
        terminating_since: None,
    }
}

pub(crate) fn member(subject: &str) -> row::Member {
    row::Member {
        id: Uuid::from_u128(11),
        workspace_id: Uuid::from_u128(10),
        subject: subject.into(),
        role: v1::WorkspaceRole::User,
        resource_version: 1,
        created_at: NOW,
    }
}

pub(crate) fn provider(name: &str, keys: &[&str]) -> row::Provider {
    let credential = |key: &&str| row::Credential {
        key: (*key).to_owned(),
        sealed_value: Bytes::from_static(b"sealed"),
        expires_at: None,
    };
    row::Provider {
        id: id_of(name),
        workspace_id: Uuid::from_u128(10),
        name: name.into(),
        kind: "generic".into(),
        profile_workspace: String::new(),
        config: Pairs::new(),
        credentials: keys.iter().map(credential).collect(),
        labels: Pairs::new(),
        annotations: Pairs::new(),
        resource_version: 1,
        created_at: NOW,
    }
}

/// A template with an empty workload.
pub(crate) fn template(name: &str) -> row::WorkloadTemplate {
    row::WorkloadTemplate {
        id: id_of(name),
        workspace_id: Uuid::from_u128(10),
        workspace_name: "w".into(),
        name: name.into(),
        labels: Pairs::new(),
        annotations: Pairs::new(),
        resource_version: 1,
        created_at: NOW,
        spec: v1::SandboxWorkloadTemplateSpec { workload: Some(Default::default()), ..Default::default() },
    }
}

/// A service of [`sandbox`].
pub(crate) fn service(name: &str) -> row::ServiceEndpoint {
    row::ServiceEndpoint {
        id: id_of(name),
        sandbox_id: Uuid::from_u128(30),
        workspace_name: "w".into(),
        sandbox_name: "s".into(),
        service: name.into(),
        target_port: 8080,
        authorization_mode: v1::ServiceAuthorizationMode::Strip,
        resource_version: 1,
        created_at: NOW,
    }
}

/// A sandbox that was just created.
pub(crate) fn sandbox(name: &str) -> row::Sandbox {
    let mut row = row::Sandbox {
        id: Uuid::from_u128(30),
        workspace_id: Uuid::from_u128(10),
        workspace_name: "w".into(),
        name: name.into(),
        labels: Pairs::new(),
        annotations: Pairs::new(),
        resource_version: 1,
        created_at: NOW,
        deletion_at: None,
        spec: v1::SandboxSpec::default(),
        created_from: None,
        status: v1::SandboxStatus::default(),
        phase: SandboxPhase::Provisioning,
        current_policy_version: 0,
        attachment_epoch: Uuid::from_u128(31),
        generation: 0,
        deadline: None,
        refused_content: String::new(),
        configuration_instance_id: String::new(),
        session: None,
        providers: Vec::new(),
    };
    let ids = CountedIds::default();
    phase::begin(&mut row, "initial", At { now: NOW, ids: &ids, window: Duration::from_secs(300) });
    phase::say(&mut row.status, Why::SupervisorNotConnected, NOW);
    row
}

/// A sandbox with a live session that runs.
pub(crate) fn ready_sandbox(name: &str) -> row::Sandbox {
    let mut row = sandbox(name);
    row.session = Some(session(40));
    let ids = CountedIds::default();
    let at = At { now: NOW, ids: &ids, window: Duration::from_secs(300) };
    assert_eq!(phase::apply(&mut row, phase::Event::Admitted, true, at), phase::Applied::Changed);
    row
}

pub(crate) fn session(id: u128) -> row::Session {
    row::Session {
        id: Uuid::from_u128(id),
        bridge_id: Uuid::from_u128(50),
        instance_id: Uuid::from_u128(51).to_string(),
        connection_epoch: 1,
        config_push: true,
        result_number: 0,
        end_number: 0,
    }
}

/// An id that follows from a name.
pub(crate) fn id_of(name: &str) -> Uuid {
    Uuid::from_u128(name.bytes().fold(0x1000, |id: u128, byte| id.wrapping_mul(31).wrapping_add(byte.into())))
}
