//! `roadstead provider`

use std::collections::BTreeMap;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use roadstead_proto::api::datamodel::{ObjectMeta, Provider};
use roadstead_proto::api::v1;

use super::connect::Connection;
use super::output::{Output, table};
use super::{request_id, scope};

/// Providers: credentials and settings that sandboxes can have attached.
#[derive(Args, Debug)]
pub(crate) struct Command {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
    /// Workspace of the provider
    #[arg(short, long, env = "ROADSTEAD_WORKSPACE", default_value = "default", global = true)]
    workspace: String,
    #[command(subcommand)]
    action: Action,
}

#[derive(Args, Debug)]
struct Values {
    /// A credential whose value is read from the file, or from standard input if the file is `-`
    #[arg(long = "credential", value_name = "KEY=FILE", value_parser = pair)]
    credentials: Vec<(String, String)>,
    /// A plain setting of the provider
    #[arg(long = "config", value_name = "KEY=VALUE", value_parser = pair)]
    config: Vec<(String, String)>,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Make a provider. Values of credentials never stand on the command line
    Create {
        name: String,
        #[arg(long = "type")]
        kind: String,
        #[command(flatten)]
        values: Values,
    },
    /// Set or add values of a provider; an empty file removes a credential
    Update {
        name: String,
        #[command(flatten)]
        values: Values,
    },
    /// Show one provider, credentials redacted
    Get { name: String },
    /// Show the providers of the workspace
    List,
    /// Remove a provider that no sandbox has attached
    Delete { name: String },
    /// Give a sandbox the provider's values
    Attach { sandbox: String, name: String },
    /// Take the provider's values from a sandbox
    Detach { sandbox: String, name: String },
}

impl Command {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let mut client = self.connection.open().await?;
        let (output, workspace) = (self.output, self.workspace);
        let workspace_scope = scope(&workspace);
        match self.action {
            Action::Create { name, kind, values } => {
                let request = v1::CreateProviderRequest {
                    workspace_scope,
                    provider: Some(values.provider(name, kind)?),
                    request_id: request_id(),
                };
                let response = client.create_provider(request).await?.into_inner();
                output.show(&response, |response| rows(response.provider.as_slice()))
            }
            Action::Update { name, values } => {
                let request = v1::UpdateProviderRequest {
                    workspace_scope,
                    provider: Some(values.provider(name, String::new())?),
                    request_id: request_id(),
                    ..Default::default()
                };
                let response = client.update_provider(request).await?.into_inner();
                output.show(&response, |response| rows(response.provider.as_slice()))
            }
            Action::Get { name } => {
                let response =
                    client.get_provider(v1::GetProviderRequest { workspace_scope, name }).await?.into_inner();
                output.show(&response, |response| rows(response.provider.as_slice()))
            }
            Action::List => {
                let mut all = v1::ListProvidersResponse::default();
                loop {
                    let request = v1::ListProvidersRequest {
                        workspace_scope: workspace_scope.clone(),
                        page_token: all.next_page_token.clone(),
                        ..Default::default()
                    };
                    let page = client.list_providers(request).await?.into_inner();
                    all.providers.extend(page.providers);
                    all.next_page_token = page.next_page_token;
                    if all.next_page_token.is_empty() {
                        return output.show(&all, |all| rows(&all.providers));
                    }
                }
            }
            Action::Delete { name } => {
                let request =
                    v1::DeleteProviderRequest { workspace_scope, name, request_id: request_id(), ..Default::default() };
                let response = client.delete_provider(request).await?.into_inner();
                output.show(&response, |_| "deleted".to_owned())
            }
            Action::Attach { sandbox, name } => {
                let request = v1::AttachSandboxProviderRequest {
                    workspace_scope,
                    sandbox,
                    provider: name,
                    request_id: request_id(),
                    ..Default::default()
                };
                let response = client.attach_sandbox_provider(request).await?.into_inner();
                let text = if response.attached { "attached" } else { "was attached already" };
                output.show(&response, |_| text.to_owned())
            }
            Action::Detach { sandbox, name } => {
                let request = v1::DetachSandboxProviderRequest {
                    workspace_scope,
                    sandbox,
                    provider: name,
                    request_id: request_id(),
                    ..Default::default()
                };
                let response = client.detach_sandbox_provider(request).await?.into_inner();
                let text = if response.detached { "detached" } else { "was not attached" };
                output.show(&response, |_| text.to_owned())
            }
        }
    }
}

impl Values {
    fn provider(self, name: String, kind: String) -> anyhow::Result<Provider> {
        let mut credentials = BTreeMap::new();
        for (key, file) in self.credentials {
            credentials.insert(key, read_value(&file)?);
        }
        Ok(Provider {
            metadata: Some(ObjectMeta { name, ..Default::default() }),
            r#type: kind,
            credentials,
            config: self.config.into_iter().collect(),
            ..Default::default()
        })
    }
}

/// The content of a file without the newline at its end.
fn read_value(file: &str) -> anyhow::Result<String> {
    let text = if file == "-" {
        std::io::read_to_string(std::io::stdin()).context("cannot read standard input")?
    } else {
        std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?
    };
    Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("must be of the form KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn rows(providers: &[Provider]) -> String {
    let mut rows = vec![vec!["NAME".into(), "TYPE".into(), "CREDENTIALS".into(), "ID".into()]];
    rows.extend(providers.iter().map(|provider| {
        let metadata = provider.metadata.clone().unwrap_or_default();
        let keys = provider.credentials.keys().cloned().collect::<Vec<_>>().join(",");
        vec![metadata.name, provider.r#type.clone(), keys, metadata.id]
    }));
    table(&rows)
}
