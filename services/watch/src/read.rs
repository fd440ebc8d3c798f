//! Reads, one family a file. Each is one statement, with the caller's rights in the same snapshot.

mod entries;
mod paging;
mod policy;
mod provider;
mod sandbox;
mod service;
mod setting;
mod template;
mod workspace;

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use roadstead_proto::api::datamodel::{WorkspaceSelector, workspace_selector::Selection};
use roadstead_proto::internal::User;
use roadstead_proto::method::{Method, WorkspaceRole};
use roadstead_proto::page_token::PageTokens;
use roadstead_service_kit::access;
use roadstead_service_kit::settings::ServiceUrls;
use roadstead_store::Database;
use roadstead_store::read::{Access, Reader, Seen};

use crate::refusal::Refusal;

pub(crate) use entries::answer as entries;

/// The methods that this role answers to users.
pub(crate) const METHODS: [Method; 15] = [
    Method::GetWorkspace,
    Method::ListWorkspaces,
    Method::ListWorkspaceMembers,
    Method::GetSandbox,
    Method::ListSandboxes,
    Method::ListSandboxProviders,
    Method::GetSandboxTemplate,
    Method::ListSandboxTemplates,
    Method::GetService,
    Method::ListServices,
    Method::GetProvider,
    Method::ListProviders,
    Method::GetGatewayConfig,
    Method::GetSandboxPolicyStatus,
    Method::ListSandboxPolicies,
];

/// What reads need.
#[derive(Clone, Debug)]
pub(crate) struct Reads {
    pub(crate) database: Database,
    pub(crate) page_tokens: PageTokens,
    /// Where services are reached.
    pub(crate) service_urls: Arc<ServiceUrls>,
}

/// One call of a user.
pub(crate) struct Call<'a> {
    reads: &'a Reads,
    user: &'a User,
    method: Method,
}

impl Reads {
    /// The encoded response.
    pub(crate) async fn answer(&self, method: Method, user: &User, request: Bytes) -> Result<Bytes, Refusal> {
        let call = Call { reads: self, user, method };
        match method {
            Method::GetWorkspace => encode(call.get_workspace(decode(request)?).await?),
            Method::ListWorkspaces => encode(call.list_workspaces(decode(request)?).await?),
            Method::ListWorkspaceMembers => encode(call.list_workspace_members(decode(request)?).await?),
            Method::GetSandbox => encode(call.get_sandbox(decode(request)?).await?),
            Method::ListSandboxes => encode(call.list_sandboxes(decode(request)?).await?),
            Method::ListSandboxProviders => encode(call.list_sandbox_providers(decode(request)?).await?),
            Method::GetSandboxTemplate => encode(call.get_sandbox_template(decode(request)?).await?),
            Method::ListSandboxTemplates => encode(call.list_sandbox_templates(decode(request)?).await?),
            Method::GetService => encode(call.get_service(decode(request)?).await?),
            Method::ListServices => encode(call.list_services(decode(request)?).await?),
            Method::GetProvider => encode(call.get_provider(decode(request)?).await?),
            Method::ListProviders => encode(call.list_providers(decode(request)?).await?),
            Method::GetGatewayConfig => encode(call.get_gateway_config(decode(request)?).await?),
            Method::GetSandboxPolicyStatus => encode(call.get_sandbox_policy_status(decode(request)?).await?),
            Method::ListSandboxPolicies => encode(call.list_sandbox_policies(decode(request)?).await?),
            _ => Err(Refusal::NotServed(method)),
        }
    }
}

impl Call<'_> {
    fn database(&self) -> &Database {
        &self.reads.database
    }

    /// Platform admins see everything; others what their membership shows.
    fn reader(&self) -> Reader<'_> {
        Reader { subject: (!self.user.platform_admin).then_some(self.user.subject.as_str()) }
    }

    /// What was found, if the caller may see it. A stranger learns the same of a workspace that is there and of one
    /// that is not.
    fn allowed<T>(&self, workspace: &str, seen: Seen<T>) -> Result<T, Refusal> {
        self.check(workspace, &seen.access)?;
        Ok(seen.found)
    }

    fn check(&self, workspace: &str, access: &Access) -> Result<(), Refusal> {
        let required = self.method.rule().workspace_role.unwrap_or(WorkspaceRole::User);
        access::in_workspace(self.user, workspace, access.role, required)?;
        match access.workspace {
            Some(_) => Ok(()),
            None => Err(Refusal::not_found("workspace", workspace)),
        }
    }

    /// What was checked of a request to a workspace, or to all of them. The rights of its caller are judged first, as they
    /// are where nothing is wrong with the request.
    async fn checked<T>(&self, workspace: Option<&str>, checked: Result<T, Refusal>) -> Result<T, Refusal> {
        if checked.is_err() {
            match workspace {
                Some(name) => self.check(name, &self.database().workspace(name, self.reader()).await?)?,
                None => self.platform()?,
            }
        }
        checked
    }

    /// For the forms that belong to no workspace.
    fn platform(&self) -> Result<(), Refusal> {
        Ok(access::platform(self.user)?)
    }
}

/// Which workspaces a call is about.
enum Scope {
    One(String),
    All,
}

impl Scope {
    /// The one workspace.
    fn name(&self) -> Option<&str> {
        match self {
            Self::One(name) => Some(name),
            Self::All => None,
        }
    }

    /// What a page token is bound to. No workspace is called `*`.
    fn parameter(&self) -> &str {
        self.name().unwrap_or("*")
    }
}

/// The selector of a call that can be about all workspaces.
fn scope(selector: Option<WorkspaceSelector>) -> Result<Scope, Refusal> {
    match selector.and_then(|selector| selector.selection) {
        Some(Selection::Workspace(name)) if !name.is_empty() => plain("workspace_scope", name).map(Scope::One),
        Some(Selection::AllWorkspaces(_)) => Ok(Scope::All),
        _ => Err(Refusal::field("workspace_scope", "must name a workspace")),
    }
}

/// The selector of a call about one workspace.
fn workspace(selector: Option<WorkspaceSelector>) -> Result<String, Refusal> {
    match scope(selector)? {
        Scope::One(name) => Ok(name),
        Scope::All => Err(Refusal::field("workspace_scope", "must name one workspace; this call has no form for all")),
    }
}

/// A name that has to be given.
fn required(field: &'static str, name: String) -> Result<String, Refusal> {
    if name.is_empty() { Err(Refusal::field(field, "must not be empty")) } else { plain(field, name) }
}

/// Nothing is named with control characters, and Postgres cannot even be asked for some of them.
fn plain(field: &'static str, name: String) -> Result<String, Refusal> {
    if name.contains(char::is_control) {
        Err(Refusal::field(field, "must not hold control characters"))
    } else {
        Ok(name)
    }
}

fn decode<M: Message + Default>(request: Bytes) -> Result<M, Refusal> {
    Ok(M::decode(request)?)
}

fn encode(response: impl Message) -> Result<Bytes, Refusal> {
    Ok(response.encode_to_vec().into())
}
