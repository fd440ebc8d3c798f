//! The two flights of a mutation (D3): the first reads, claims and locks; the second writes, settles the ledger and
//! commits. There is no other way to end a transaction.

use std::time::SystemTime;

use bytes::Bytes;
use roadstead_proto::api::v1;
use uuid::Uuid;

use crate::row;

/// What the ledger needs to know of a command before anything is done.
#[derive(Clone, Debug)]
pub struct Command {
    pub id: Uuid,
    pub method: &'static str,
    /// SHA-256 over provider, issuer and subject of the caller, or over the sandbox's id.
    pub caller: [u8; 32],
    pub deadline: SystemTime,
    pub traceparent: String,
    /// Set if the client gave a request id.
    pub claim: Option<Claim>,
}

/// The claim on a request id.
#[derive(Clone, Debug)]
pub struct Claim {
    pub request_id: Uuid,
    /// Workspace name, target name, or empty for global calls.
    pub scope: String,
    pub protected: bool,
    /// Empty for unprotected methods.
    pub key_id: String,
    pub fingerprint: [u8; 32],
}

/// How a statement locks a row that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Keeps the row from being deleted or changed.
    Share,
    /// For change or deletion.
    Update,
}

/// One row to resolve and lock.
#[derive(Clone, Debug)]
pub struct ByName {
    pub name: String,
    pub lock: Lock,
}

/// Providers to resolve and lock, in order of id.
#[derive(Clone, Debug, Default)]
pub enum Providers {
    #[default]
    None,
    /// By name in the workspace of the call; missing ones are simply absent.
    Named(Vec<String>, Lock),
}

/// Sandboxes to resolve and lock.
#[derive(Clone, Debug, Default)]
pub enum Sandboxes {
    #[default]
    None,
    /// By name in the workspace of the call.
    Named(String),
    ById(Uuid),
    /// Every sandbox that has the locked provider attached.
    OfLockedProviders,
}

/// What else the decision needs, read after all locks are held.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reads {
    /// Providers attached to the locked sandboxes, with credential keys.
    pub attached_providers: bool,
    /// Newest policy revision of the locked sandbox.
    pub policy: bool,
    /// Newest revision of the global policy.
    pub global_policy: bool,
    pub sandbox_settings: bool,
    pub global_settings: bool,
    /// Kinds of objects that keep a workspace from being deleted.
    pub blockers: bool,
    pub member_count: bool,
    /// How many workload templates the workspace has.
    pub template_count: bool,
    /// All services of the locked sandbox, whose lock is theirs too.
    pub services: bool,
    /// The newest receipt of the locked sandbox and of any of the named providers that is of its present attachments.
    pub receipt: bool,
    /// Whether the process that owns the sandbox's session is gone (D6), and the renewal rows behind it.
    pub session_owner: bool,
    /// What the sandbox's newest session observes, whose lock is the sandbox's.
    pub observation: bool,
    /// Whether an operation behind a receipt of the sandbox is pending.
    pub pending_receipts: bool,
    /// A policy revision by version: of the locked sandbox.
    pub policy_version: Option<u32>,
}

/// Everything that the first flight resolves and locks, in the lock order of D3.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    /// Subject whose membership counts; none for platform-level callers and sandboxes.
    pub subject: Option<String>,
    /// Rights of `subject` in it are read with it, before the ledger and again under the lock.
    pub workspace: Option<ByName>,
    /// Serialises writers of the global policy and settings.
    pub global: bool,
    /// A member row by subject, for update.
    pub member: Option<String>,
    /// In the workspace of the call.
    pub template: Option<ByName>,
    pub providers: Providers,
    pub sandboxes: Sandboxes,
    pub reads: Reads,
}

/// State of the session's owner as judged in one statement by Postgres's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionOwner {
    /// No session, or its bridge renews.
    Alive,
    /// The bridge's row is older than 20 s and the judge is fresh and has been for 20 s.
    Gone,
}

/// What the first flight found, with all locks held.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Postgres's clock at the first flight.
    pub now: SystemTime,
    pub ledger: Ledger,
    /// Role of `Locks::subject` in the workspace, read again by the locking statement.
    pub role: Option<v1::WorkspaceRole>,
    pub workspace: Option<row::Workspace>,
    pub member: Option<row::Member>,
    pub template: Option<row::WorkloadTemplate>,
    pub providers: Vec<row::Provider>,
    pub sandboxes: Vec<row::Sandbox>,
    pub attached_providers: Vec<row::Provider>,
    pub policy: Option<row::PolicyRevision>,
    pub policy_version: Option<row::PolicyRevision>,
    pub global_policy: Option<row::PolicyRevision>,
    pub sandbox_settings: row::Settings,
    pub global_settings: row::Settings,
    pub blockers: Vec<String>,
    pub member_count: u64,
    pub template_count: u64,
    /// In order of their names.
    pub services: Vec<row::ServiceEndpoint>,
    pub receipt: Option<row::ProviderReceipt>,
    pub session_owner: Option<SessionOwner>,
    pub observation: Option<row::Observation>,
    pub pending_receipts: bool,
}

impl Loaded {
    /// What a first flight finds for a fresh command when it finds nothing.
    #[must_use]
    pub fn nothing(now: SystemTime) -> Self {
        Self {
            now,
            ledger: Ledger::Fresh,
            role: None,
            workspace: None,
            member: None,
            template: None,
            providers: Vec::new(),
            sandboxes: Vec::new(),
            attached_providers: Vec::new(),
            policy: None,
            policy_version: None,
            global_policy: None,
            sandbox_settings: row::Settings::default(),
            global_settings: row::Settings::default(),
            blockers: Vec::new(),
            member_count: 0,
            template_count: 0,
            services: Vec::new(),
            receipt: None,
            session_owner: None,
            observation: None,
            pending_receipts: false,
        }
    }

    /// A sandbox whose session's owner is alive, and nothing else, for a fresh command.
    #[must_use]
    pub fn of_session(now: SystemTime, sandbox: row::Sandbox) -> Self {
        Self { sandboxes: vec![sandbox], session_owner: Some(SessionOwner::Alive), ..Self::nothing(now) }
    }
}

/// What the ledger says of this command and its claim.
#[derive(Clone, Debug)]
pub enum Ledger {
    /// Both are new: the rows are this transaction's.
    Fresh,
    /// The command is settled already: its answer, if it keeps one.
    Settled(Outcome),
    /// The request id is taken by an earlier command. The command row is this transaction's.
    Claimed(ClaimRow),
}

/// The format of the claims that this version writes and reads.
pub const CLAIM_FORMAT: i16 = 1;

/// A stored claim.
#[derive(Clone, Debug)]
pub struct ClaimRow {
    pub format: i16,
    pub protected: bool,
    pub key_id: String,
    pub fingerprint: Vec<u8>,
    pub workspace_id: Option<Uuid>,
    /// None while the outcome is not known.
    pub completed_at: Option<SystemTime>,
    /// An encoded `internal::Receipt`.
    pub receipt: Bytes,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Encoded response.
    Response { body: Bytes, replayed: bool },
    /// The response holds a secret: an encoded receipt from which it is minted again.
    Reference(Bytes),
    /// Encoded google.rpc.Status.
    Refused(Bytes),
    /// A two-step effect has begun and its outcome is not known.
    Started,
}

/// One change of state. Each is one statement; one that must hit a row raises if it does not.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "short-lived, a handful a transaction")]
pub enum Write {
    InsertWorkspace(row::Workspace),
    /// Expects the row at `resource_version - 1`.
    UpdateWorkspace(row::Workspace),
    /// With its members.
    DeleteWorkspace(Uuid),
    InsertMember(row::Member),
    DeleteMember {
        workspace_id: Uuid,
        subject: String,
    },
    InsertTemplate(row::WorkloadTemplate),
    DeleteTemplate(Uuid),
    InsertProvider(row::Provider),
    /// Expects the row at `resource_version - 1`.
    UpdateProvider(row::Provider),
    DeleteProvider(Uuid),
    /// Does not write attachments.
    InsertSandbox(row::Sandbox),
    /// Expects the row at `resource_version - 1`. Does not write attachments.
    UpdateSandbox(row::Sandbox),
    /// With attachments, services and settings. Its policies are removed after it, by
    /// [`crate::Database::delete_forgotten`].
    DeleteSandbox(Uuid),
    /// Of a sandbox that stands, or was inserted before it.
    InsertService(row::ServiceEndpoint),
    /// Expects the row at `resource_version - 1`.
    UpdateService(row::ServiceEndpoint),
    DeleteService(Uuid),
    Attach {
        sandbox_id: Uuid,
        provider_id: Uuid,
    },
    Detach {
        sandbox_id: Uuid,
        provider_id: Uuid,
    },
    /// Receipts of one change, one for each sandbox. The newest two hundred of a sandbox are kept.
    InsertReceipts(Vec<row::ProviderReceipt>),
    /// Ends the operations that are pending behind the receipts of a sandbox.
    SettleReceipts {
        sandbox_id: Uuid,
        end: row::Completion,
    },
    /// In place of what an earlier session of the sandbox observed, or this one before.
    PutObservation(row::Observation),
    /// The history keeps the newest hundred, the loaded one and the sandbox's current one; some of the others go.
    InsertPolicyRevision(row::PolicyRevision),
    /// Settles one revision, and every lower one that is still PENDING (and, if loaded, LOADED) as SUPERSEDED.
    SettlePolicy {
        scope: Option<Uuid>,
        version: u32,
        status: v1::PolicyStatus,
        error: String,
    },
    PutSetting {
        scope: Option<Uuid>,
        key: String,
        value: roadstead_proto::api::sandbox::SettingValue,
    },
    DeleteSetting {
        scope: Option<Uuid>,
        key: String,
    },
    /// Expects the revision before it.
    SetSettingsRevision {
        scope: Option<Uuid>,
        revision: u64,
    },
}

/// How a transaction is to end.
#[derive(Clone, Debug)]
pub enum Conclusion {
    /// The state changes, the claim completes with `receipt`, the command row keeps `outcome`. If that is a refusal, one
    /// that leaves something behind, the claim is deleted.
    Effect { writes: Vec<Write>, outcome: Outcome, receipt: Bytes },
    /// No state change: the claim of this transaction, if any, is deleted and the refusal is kept.
    Refusal(Bytes),
    /// An answer from an earlier claim: the command row keeps it.
    Replay(Outcome),
}
