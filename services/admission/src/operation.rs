//! The operations: one file each, a plain function from what was asked and what was found to what is to be written.

mod add_workspace_member;
mod attach_sandbox_provider;
mod create_provider;
mod create_sandbox;
mod create_sandbox_template;
mod create_workspace;
mod delete_provider;
mod delete_sandbox;
mod delete_sandbox_template;
mod delete_service;
mod delete_workspace;
mod detach_sandbox_provider;
mod end_session;
mod expose_service;
mod finalize_main_process_exit;
mod issue_sandbox_token;
mod refresh_sandbox_token;
mod register_session;
mod remove_workspace_member;
mod report_endpoint_status;
mod report_main_process_exit;
mod report_policy_status;
mod report_sandbox_configuration;
mod session_readiness;
mod session_result;
mod start_sandbox;
mod stop_sandbox;
mod update_config;
mod update_provider;

mod attachment;
mod completion;
mod credentials;
mod service;
pub(crate) mod session;
pub(crate) mod verdict;

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use roadstead_proto::api::v1;
use roadstead_proto::internal::{self, Receipt};
use roadstead_proto::method::Method;
use roadstead_proto::subject::Report;
use roadstead_store::mutation::{Loaded, Locks, Write};
use roadstead_store::{row, view};
use secrecy::SecretSlice;

use crate::context::Context;
use crate::effect::Effect;
use crate::ledger::{Address, replay};
use crate::refusal::Refusal;

/// A mutation, as decoded from the bytes of a command.
pub trait Operation: Send + Sync {
    /// What the request is about.
    fn address(&self) -> Address<'_>;

    /// The request id as the client wrote it; empty if it gave none.
    fn request_id(&self) -> &str {
        ""
    }

    /// Whether it needs a platform admin, beyond the rule of its method.
    fn needs_platform_admin(&self) -> bool {
        false
    }

    /// Whether it creates something in its workspace, which must not be on its way out then.
    fn creates(&self) -> bool {
        false
    }

    /// Checks what needs no state, and adds to `locks` what the decision needs.
    ///
    /// # Errors
    /// What is wrong with the request whatever the state.
    fn plan(&self, locks: Locks, context: &Context<'_>) -> Result<Locks, Refusal>;

    /// Decides, with everything locked that was planned.
    ///
    /// # Errors
    /// Why the state does not allow it. Nothing is written then.
    fn decide(&self, loaded: &Loaded, context: &Context<'_>) -> Result<Decision, Refusal>;

    /// What is to be written and told about an effect that happened, decided with everything locked again that was
    /// planned: the state may have changed since. None: it cannot be written down, and an operator has to.
    fn complete(&self, _brought: &SecretSlice<u8>, _loaded: &Loaded, _context: &Context<'_>) -> Option<Decision> {
        None
    }

    /// The answer of an earlier success, shown again; none if that cannot be done.
    fn replay(&self, _receipt: &Receipt, _loaded: &Loaded, _context: &Context<'_>) -> Option<Bytes> {
        None
    }
}

/// What is to be written and told.
#[derive(Clone, Debug)]
pub struct Decision {
    pub writes: Vec<Write>,
    pub reply: Reply,
    pub receipt: Receipt,
}

/// What is told once the writes are committed.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// An encoded response.
    Response(Bytes),
    /// A token for a sandbox. It is minted when it is told, never stored.
    Token(internal::receipt::TokenGrant),
    /// A refusal that leaves something behind. It frees the request id like any other.
    Refusal(Refusal),
    /// Nothing yet: this effect outside Postgres comes first, and [`Operation::complete`] after it. Nothing is written
    /// before.
    After(Arc<dyn Effect>),
}

impl Decision {
    /// A success of an operation with a request id.
    #[must_use]
    pub fn new(writes: Vec<Write>, response: &impl Message, receipt: Receipt) -> Self {
        Self { writes, reply: Reply::Response(replay::encoded(response)), receipt }
    }

    /// An effect outside Postgres has to be had first.
    #[must_use]
    pub fn after(effect: Arc<dyn Effect>) -> Self {
        Self { writes: Vec::new(), reply: Reply::After(effect), receipt: Receipt::default() }
    }

    /// A success of a report, which no request id ever asks for again.
    #[must_use]
    pub fn report(writes: Vec<Write>, response: &impl Message) -> Self {
        Self::new(writes, response, Receipt::default())
    }
}

/// What a command may be: a method of users, or a report of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    Method(Method),
    Report(Report),
}

impl Name {
    /// The name as it travels and is kept.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Method(method) => method.name(),
            Self::Report(report) => report.name(),
        }
    }
}

/// Why a command has no operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("no such mutation is served")]
    Unserved,
    #[error("the request cannot be decoded")]
    Malformed,
}

/// The operation of a command: everything that admission serves.
///
/// # Errors
/// If the method is not served, or the bytes are not its message.
pub fn read(name: Name, request: &[u8]) -> Result<Box<dyn Operation>, Unreadable> {
    match name {
        Name::Method(method) => match method {
            Method::CreateWorkspace => decode::<v1::CreateWorkspaceRequest>(request),
            Method::DeleteWorkspace => decode::<v1::DeleteWorkspaceRequest>(request),
            Method::AddWorkspaceMember => decode::<v1::AddWorkspaceMemberRequest>(request),
            Method::RemoveWorkspaceMember => decode::<v1::RemoveWorkspaceMemberRequest>(request),
            Method::CreateSandboxTemplate => decode::<v1::CreateSandboxTemplateRequest>(request),
            Method::DeleteSandboxTemplate => decode::<v1::DeleteSandboxTemplateRequest>(request),
            Method::CreateSandbox => decode::<v1::CreateSandboxRequest>(request),
            Method::DeleteSandbox => decode::<v1::DeleteSandboxRequest>(request),
            Method::StopSandbox => decode::<v1::StopSandboxRequest>(request),
            Method::StartSandbox => decode::<v1::StartSandboxRequest>(request),
            Method::AttachSandboxProvider => decode::<v1::AttachSandboxProviderRequest>(request),
            Method::DetachSandboxProvider => decode::<v1::DetachSandboxProviderRequest>(request),
            Method::ExposeService => decode::<v1::ExposeServiceRequest>(request),
            Method::DeleteService => decode::<v1::DeleteServiceRequest>(request),
            Method::CreateProvider => decode::<v1::CreateProviderRequest>(request),
            Method::UpdateProvider => decode::<v1::UpdateProviderRequest>(request),
            Method::DeleteProvider => decode::<v1::DeleteProviderRequest>(request),
            Method::UpdateConfig => decode::<v1::UpdateConfigRequest>(request),
            _ => Err(Unreadable::Unserved),
        },
        Name::Report(report) => match report {
            Report::UpdateConfig => decode::<v1::UpdateConfigRequest>(request),
            Report::ReportPolicyStatus => decode::<v1::ReportPolicyStatusRequest>(request),
            Report::ReportSandboxConfiguration => decode::<v1::ReportSandboxConfigurationRequest>(request),
            Report::ReportMainProcessExit => decode::<v1::ReportMainProcessExitRequest>(request),
            Report::FinalizeMainProcessExit => decode::<v1::FinalizeMainProcessExitRequest>(request),
            Report::IssueSandboxToken => decode::<v1::IssueSandboxTokenRequest>(request),
            Report::RefreshSandboxToken => decode::<v1::RefreshSandboxTokenRequest>(request),
            Report::ReportEndpointStatus => decode::<v1::ReportEndpointStatusRequest>(request),
            Report::RegisterSession => decode::<internal::RegisterSession>(request),
            Report::SessionResult => decode::<internal::SessionResult>(request),
            Report::SessionReadiness => decode::<internal::SessionReadiness>(request),
            Report::EndSession => decode::<internal::EndSession>(request),
        },
    }
}

fn decode<O: Operation + Message + Default + 'static>(request: &[u8]) -> Result<Box<dyn Operation>, Unreadable> {
    O::decode(request).map(|operation| Box::new(operation) as Box<dyn Operation>).map_err(|_| Unreadable::Malformed)
}

/// The workspace of the call.
///
/// # Errors
/// Never, once an attempt has checked that it is there.
pub(crate) fn workspace(loaded: &Loaded) -> Result<&row::Workspace, Refusal> {
    loaded.workspace.as_ref().ok_or(Refusal::Internal)
}

/// Largest sandbox as the API shows it: what its entry in a bucket can hold, with room for what is observed of it.
const SANDBOX_BYTES: usize = 960 * 1024;

/// Refuses a sandbox that is too large to be shown.
pub(crate) fn fits(row: &row::Sandbox) -> Result<(), Refusal> {
    if view::sandbox(row).encoded_len() > SANDBOX_BYTES {
        return Err(Refusal::Exhausted(format!("a sandbox is at most {SANDBOX_BYTES} bytes with its annotations")));
    }
    Ok(())
}

/// Compares the version that a caller expects; 0 means any.
pub(crate) fn at_version(expected: u64, current: u64) -> Result<(), Refusal> {
    if expected == 0 || expected == current { Ok(()) } else { Err(Refusal::VersionConflict { current }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::method_row::ROWS;

    #[test]
    fn every_declared_mutation_is_served_and_nothing_else_with_a_request_id() {
        for method in Method::ALL {
            let served = read(Name::Method(*method), b"").is_ok();
            assert_eq!(served, ROWS.iter().any(|row| row.method == *method), "{method}");
        }
        for report in Report::ALL {
            assert!(read(Name::Report(*report), b"").is_ok(), "{report:?}");
        }
    }

    #[test]
    fn bytes_of_no_message_are_malformed() {
        assert_eq!(read(Name::Method(Method::StopSandbox), b"\xff").err(), Some(Unreadable::Malformed));
    }
}
