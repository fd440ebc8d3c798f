//! Changes of one sandbox, one at a time.

use anyhow::Context as _;
use roadstead_proto::api::datamodel::{ObjectMeta, Provider};
use roadstead_proto::api::v1;

use crate::bench::path;
use crate::bench::stage::{Stage, WORKSPACE};
use crate::client::connect::Client;
use crate::client::scope;

const PROVIDER: &str = "bench";

/// Makes what is attached and detached.
pub(crate) async fn create_provider(stage: &Stage) -> anyhow::Result<()> {
    let provider = Provider {
        metadata: Some(ObjectMeta { name: PROVIDER.to_owned(), ..Default::default() }),
        r#type: "generic".to_owned(),
        credentials: [("BENCH_TOKEN".to_owned(), "value".to_owned())].into(),
        ..Default::default()
    };
    let create =
        v1::CreateProviderRequest { workspace_scope: scope(WORKSPACE), provider: Some(provider), ..Default::default() };
    stage.busy.first().context("no edge runs")?.clone().create_provider(create).await?;
    Ok(())
}

/// Changes the sandbox of one caller. A setting does not change what a watch shows; attaching a provider does.
pub(crate) struct Changes {
    client: Client,
    sandbox: String,
    attached: bool,
}

impl Changes {
    /// Through the first edge.
    pub(crate) fn of(stage: &Stage, at: usize) -> anyhow::Result<Self> {
        let client = stage.busy.first().context("no edge runs")?.clone();
        Ok(Self { client, sandbox: path::sandbox(at), attached: false })
    }

    /// Attaches or detaches the provider; the version of the sandbox after that.
    pub(crate) async fn next(&mut self) -> anyhow::Result<u64> {
        self.attached = !self.attached;
        let (workspace_scope, sandbox, provider) = (scope(WORKSPACE), self.sandbox.clone(), PROVIDER.to_owned());
        let sandbox = if self.attached {
            let request = v1::AttachSandboxProviderRequest { workspace_scope, sandbox, provider, ..Default::default() };
            self.client.attach_sandbox_provider(request).await?.into_inner().sandbox
        } else {
            let request = v1::DetachSandboxProviderRequest { workspace_scope, sandbox, provider, ..Default::default() };
            self.client.detach_sandbox_provider(request).await?.into_inner().sandbox
        };
        Ok(sandbox.and_then(|sandbox| sandbox.metadata).map_or(0, |metadata| metadata.resource_version))
    }
}
