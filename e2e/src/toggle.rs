//! Changes of a sandbox that every watch shows: a provider is attached and detached.

use std::collections::BTreeMap;

use roadstead_proto::api::{
    datamodel::{ObjectMeta, Provider},
    v1::{AttachSandboxProviderRequest, CreateProviderRequest, DetachSandboxProviderRequest},
};

use crate::api::{Client, client, request_id, scope};

const PROVIDER: &str = "toggled";

/// Changes one sandbox again and again.
#[derive(Debug)]
pub struct Toggle {
    edge: Client,
    workspace: String,
    sandbox: String,
    provider: String,
    attached: bool,
}

/// Makes the provider that toggles attach, once for a workspace.
pub async fn prepare(edge: &str, workspace: &str) {
    provider(client(edge), workspace, PROVIDER).await;
}

/// Makes a provider with a credential.
pub async fn provider(mut edge: Client, workspace: &str, name: &str) {
    let provider = Provider {
        metadata: Some(ObjectMeta { name: name.to_owned(), ..Default::default() }),
        r#type: "generic".to_owned(),
        credentials: BTreeMap::from([(format!("{}_TOKEN", name.to_uppercase()), request_id())]),
        ..Default::default()
    };
    let request =
        CreateProviderRequest { workspace_scope: scope(workspace), provider: Some(provider), request_id: request_id() };
    edge.create_provider(request).await.unwrap();
}

impl Toggle {
    /// Through that edge, of a sandbox without the prepared provider.
    #[must_use]
    pub fn of(edge: &str, workspace: &str, sandbox: &str) -> Self {
        Self::with(client(edge), workspace, sandbox, PROVIDER)
    }

    /// Through that client, of a sandbox without that provider.
    #[must_use]
    pub fn with(edge: Client, workspace: &str, sandbox: &str, provider: &str) -> Self {
        let (workspace, sandbox, provider) = (workspace.to_owned(), sandbox.to_owned(), provider.to_owned());
        Self { edge, workspace, sandbox, provider, attached: false }
    }

    /// Changes it; its version after that.
    pub async fn next(&mut self) -> u64 {
        self.attached = !self.attached;
        let workspace_scope = scope(&self.workspace);
        let (sandbox, provider, request_id) = (self.sandbox.clone(), self.provider.clone(), request_id());
        let changed = if self.attached {
            let request =
                AttachSandboxProviderRequest { workspace_scope, sandbox, provider, request_id, ..Default::default() };
            self.edge.attach_sandbox_provider(request).await.unwrap().into_inner().sandbox
        } else {
            let request =
                DetachSandboxProviderRequest { workspace_scope, sandbox, provider, request_id, ..Default::default() };
            self.edge.detach_sandbox_provider(request).await.unwrap().into_inner().sandbox
        };
        changed.unwrap().metadata.unwrap().resource_version
    }
}
