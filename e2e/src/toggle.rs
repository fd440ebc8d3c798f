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
    attached: bool,
}

/// Makes the provider that toggles attach, once for a workspace.
pub async fn prepare(edge: &str, workspace: &str) {
    let provider = Provider {
        metadata: Some(ObjectMeta { name: PROVIDER.to_owned(), ..Default::default() }),
        r#type: "generic".to_owned(),
        credentials: BTreeMap::from([("TOGGLED_TOKEN".to_owned(), request_id())]),
        ..Default::default()
    };
    let request =
        CreateProviderRequest { workspace_scope: scope(workspace), provider: Some(provider), request_id: request_id() };
    client(edge).create_provider(request).await.unwrap();
}

impl Toggle {
    /// Through that edge, of a sandbox without the provider.
    #[must_use]
    pub fn of(edge: &str, workspace: &str, sandbox: &str) -> Self {
        Self { edge: client(edge), workspace: workspace.to_owned(), sandbox: sandbox.to_owned(), attached: false }
    }

    /// Changes it; its version after that.
    pub async fn next(&mut self) -> u64 {
        self.attached = !self.attached;
        let workspace_scope = scope(&self.workspace);
        let (sandbox, provider, request_id) = (self.sandbox.clone(), PROVIDER.to_owned(), request_id());
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
