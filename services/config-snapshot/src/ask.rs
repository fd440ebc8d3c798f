//! Who asks for what: a request as it came from a door, read into values or refused.

use std::time::SystemTime;

use prost::Message;
use roadstead_proto::api::datamodel::{WorkspaceSelector, workspace_selector::Selection};
use roadstead_proto::api::sandbox::GetSandboxConfigRequest;
use roadstead_proto::api::v1::{GetSandboxProviderEnvironmentRequest, GetSandboxProviderStatusRequest, WorkspaceRole};
use roadstead_proto::internal::{BootstrapRequest, ReadRequest, StandingRequest, User, principal::Kind};
use roadstead_proto::sealing::{CipherKeys, open_token};
use roadstead_service_kit::access;
use roadstead_service_kit::sandbox_token::{SandboxIdentity, TokenVerifier};
use roadstead_store::inputs::Named;
use uuid::Uuid;

use crate::refusal::Refusal;

const SCOPE: &str = "workspace_scope";

/// A user's question for the configuration of a sandbox.
#[derive(Debug)]
pub(crate) struct OfUser {
    pub(crate) user: User,
    pub(crate) workspace: String,
    pub(crate) sandbox: String,
    /// The request's field that names the sandbox.
    field: &'static str,
}

impl OfUser {
    /// Reads the question for a sandbox's configuration.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) fn read(request: ReadRequest) -> Result<Self, Refusal> {
        let user = user(&request)?;
        let GetSandboxConfigRequest { name, workspace_scope } = GetSandboxConfigRequest::decode(request.request)?;
        Self::about(user, workspace_scope, "name", name)
    }

    /// Reads the question for the status of a provider on a sandbox, and what else it says.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) fn read_status(request: ReadRequest) -> Result<(Self, GetSandboxProviderStatusRequest), Refusal> {
        let user = user(&request)?;
        let mut asked = GetSandboxProviderStatusRequest::decode(request.request)?;
        let (scope, sandbox) = (asked.workspace_scope.take(), std::mem::take(&mut asked.sandbox));
        if asked.provider.is_empty() && asked.receipt_id.is_empty() {
            return Err(Refusal::field("provider", "required without a receipt_id"));
        }
        Ok((Self::about(user, scope, "sandbox", sandbox)?, asked))
    }

    fn about(
        user: User,
        scope: Option<WorkspaceSelector>,
        field: &'static str,
        sandbox: String,
    ) -> Result<Self, Refusal> {
        let workspace = named(scope)?.ok_or_else(|| Refusal::field(SCOPE, "required"))?;
        // Nothing is named with them, and Postgres cannot even be asked for some of them.
        for (field, text) in [(SCOPE, &workspace), (field, &sandbox)] {
            if text.contains(char::is_control) {
                return Err(Refusal::field(field, "must not hold control characters"));
            }
        }
        Ok(Self { user, workspace, sandbox, field })
    }

    /// The sandbox, as Postgres is asked for it. Membership does not count for those who need none.
    #[must_use]
    pub(crate) fn named(&self) -> Named {
        let subject = (!self.user.platform_admin).then(|| self.user.subject.clone());
        Named { workspace: self.workspace.clone(), name: self.sandbox.clone(), subject }
    }

    /// Judges membership, then that the workspace is there, then the request.
    ///
    /// # Errors
    /// Why it is refused. A stranger learns nothing of what exists.
    pub(crate) fn judge(&self, role: Option<WorkspaceRole>, workspace_exists: bool) -> Result<(), Refusal> {
        access::in_workspace(&self.user, &self.workspace, role, WorkspaceRole::User)?;
        if !workspace_exists {
            return Err(Refusal::not_found("workspace", &self.workspace));
        }
        if self.sandbox.is_empty() {
            return Err(Refusal::field(self.field, "required"));
        }
        Ok(())
    }
}

/// What it takes to know a sandbox by its token.
#[derive(Debug)]
pub(crate) struct Tokens {
    /// The snapshot key: reads travel unsealed, so the bridge encrypts the tokens in them.
    pub(crate) passed: CipherKeys,
    pub(crate) verifier: TokenVerifier,
}

/// What a supervisor asks about its own sandbox.
#[derive(Debug)]
pub(crate) struct OfSandbox<Asked> {
    pub(crate) identity: SandboxIdentity,
    pub(crate) asked: Asked,
}

/// A question that a supervisor may ask.
pub(crate) trait Question: Message + Default {
    /// Whether it is about the sandbox of that id, as far as it says itself.
    fn is_about(&self, sandbox_id: Uuid) -> bool;
}

impl Question for GetSandboxProviderEnvironmentRequest {
    fn is_about(&self, sandbox_id: Uuid) -> bool {
        self.sandbox_id == sandbox_id.to_string()
    }
}

impl Question for BootstrapRequest {
    fn is_about(&self, sandbox_id: Uuid) -> bool {
        self.sandbox_id == sandbox_id.to_string()
    }
}

impl Question for StandingRequest {
    fn is_about(&self, sandbox_id: Uuid) -> bool {
        self.sandbox_id == sandbox_id.to_string()
    }
}

impl Question for GetSandboxConfigRequest {
    /// It names the sandbox, which is compared with the row.
    fn is_about(&self, _: Uuid) -> bool {
        true
    }
}

impl<Asked: Question> OfSandbox<Asked> {
    /// Reads it and verifies the token that it carries.
    ///
    /// # Errors
    /// Why it is refused; about another sandbox the same, whether it exists or not.
    pub(crate) fn read(request: ReadRequest, tokens: &Tokens, now: SystemTime) -> Result<Self, Refusal> {
        let Some(Kind::Sandbox(principal)) = request.principal.and_then(|principal| principal.kind) else {
            return Err(Refusal::WrongDoor("sandboxes"));
        };
        let token = open_token(&tokens.passed, &principal.token)?;
        let identity = tokens.verifier.verify(&token, now)?;
        let asked = Asked::decode(request.request)?;
        if principal.sandbox_id != identity.sandbox_id.to_string() || !asked.is_about(identity.sandbox_id) {
            return Err(Refusal::NotItself);
        }
        Ok(Self { identity, asked })
    }

    /// Judges the token against the sandbox's row: one of an earlier run counts no more.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) fn judge(&self, generation: u64) -> Result<(), Refusal> {
        if self.identity.generation == generation { Ok(()) } else { Err(Refusal::OldToken) }
    }
}

impl OfSandbox<GetSandboxConfigRequest> {
    /// Judges the name and the scope, if one is given, against the sandbox's row.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) fn judge_name(&self, workspace: &str, sandbox: &str) -> Result<(), Refusal> {
        let scope = named(self.asked.workspace_scope.clone())?;
        let own = self.asked.name == sandbox && scope.is_none_or(|scope| scope == workspace);
        if own { Ok(()) } else { Err(Refusal::NotItself) }
    }
}

fn user(request: &ReadRequest) -> Result<User, Refusal> {
    match request.principal.as_ref().and_then(|principal| principal.kind.as_ref()) {
        Some(Kind::User(user)) => Ok(user.clone()),
        _ => Err(Refusal::WrongDoor("users")),
    }
}

/// The workspace that a selector names; none if there is no selector.
fn named(selector: Option<WorkspaceSelector>) -> Result<Option<String>, Refusal> {
    let Some(selector) = selector else { return Ok(None) };
    match selector.selection {
        Some(Selection::Workspace(name)) if !name.is_empty() => Ok(Some(name)),
        Some(Selection::AllWorkspaces(_)) => Err(Refusal::field(SCOPE, "must name one workspace")),
        Some(Selection::Workspace(_)) | None => Err(Refusal::field(SCOPE, "must name a workspace")),
    }
}

#[cfg(test)]
mod tests;
