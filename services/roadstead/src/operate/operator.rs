//! Asking admission over the broker, as operator, sealed both ways.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use prost::Message;
use roadstead_bus::{Bus, ConnectSettings};
use roadstead_proto::internal::{self, answer::Outcome};
use roadstead_proto::role::Role;
use roadstead_proto::sealing::DoorSeal;
use roadstead_proto::subject::{self, AdminCall};
use roadstead_service_kit::role_keys::RoleKeys;
use roadstead_service_kit::status;
use uuid::Uuid;

use super::keys::Layout;
use crate::all::run_file::RunFile;

const TIMEOUT: Duration = Duration::from_secs(5);

/// How an operator reaches the broker.
#[derive(Args, Debug)]
pub(crate) struct Operator {
    /// Address of the broker
    #[arg(long, env = "ROADSTEAD_NATS_URL", default_value = "nats://127.0.0.1:4222")]
    pub(crate) nats_url: String,
    /// The operator's key file, written by `roadstead keys init` and by `roadstead all`
    #[arg(long = "keys", env = "ROADSTEAD_OPERATOR_KEYS", value_name = "FILE")]
    pub(crate) keys: PathBuf,
}

/// Who acts and why: both are kept with what was done.
#[derive(Args, Debug)]
pub(crate) struct Act {
    /// Why, in one line
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Your name
    #[arg(id = "operator", long, env = "USER", value_name = "NAME")]
    pub(crate) name: String,
}

/// An operator with an open connection to the broker.
pub(crate) struct Connected {
    bus: Bus,
    seal: DoorSeal,
}

impl Operator {
    /// Of the deployment whose data is in that folder.
    pub(crate) fn of(data: &Path) -> anyhow::Result<Self> {
        let keys = Layout::new(&data.join("keys")).role_file(Role::Operator);
        Ok(Self { nats_url: RunFile::load(data)?.nats_url, keys })
    }

    pub(crate) async fn connect(&self) -> anyhow::Result<Connected> {
        let keys = RoleKeys::load(&self.keys, Role::Operator)?;
        let settings = ConnectSettings {
            url: self.nats_url.clone(),
            name: "roadstead operator".to_owned(),
            role: Role::Operator,
            nkey_seed: Some(keys.broker_seed().clone()),
            ca: None,
        };
        let bus = Bus::connect(settings).await?;
        tokio::time::timeout(TIMEOUT, bus.connected())
            .await
            .with_context(|| format!("no broker answers at {}; is it running?", self.nats_url))?;
        Ok(Connected { bus, seal: keys.door_seal()? })
    }

    /// See [`Connected::mint`].
    pub(crate) async fn mint(
        &self,
        workspace: &str,
        sandbox: &str,
    ) -> anyhow::Result<internal::MintSandboxTokenResponse> {
        self.connect().await?.mint(workspace, sandbox).await
    }

    /// See [`Connected::ask`].
    pub(crate) async fn ask<R: Message + Default>(&self, call: AdminCall, request: &impl Message) -> anyhow::Result<R> {
        self.connect().await?.ask(call, request).await
    }
}

impl Connected {
    /// Asks the bridges, whichever takes it. What they are asked needs no seal: nothing of it is secret.
    pub(crate) async fn ask_bridges<R: Message + Default>(&self, subject: &str) -> anyhow::Result<R> {
        let answer = self.bus.request(subject, Vec::new().into(), TIMEOUT).await;
        Ok(R::decode(answer.context("no bridge answered; is one running?")?)?)
    }

    /// A fresh token for the supervisor of the sandbox.
    pub(crate) async fn mint(
        &self,
        workspace: &str,
        sandbox: &str,
    ) -> anyhow::Result<internal::MintSandboxTokenResponse> {
        let request =
            internal::MintSandboxTokenRequest { workspace: workspace.to_owned(), sandbox: sandbox.to_owned() };
        self.ask(AdminCall::MintSandboxToken, &request).await
    }

    /// Asks once.
    pub(crate) async fn ask<R: Message + Default>(&self, call: AdminCall, request: &impl Message) -> anyhow::Result<R> {
        let id = Uuid::now_v7();
        let command = internal::Command {
            command_id: id.to_string(),
            method: call.name().to_owned(),
            request: request.encode_to_vec().into(),
            ..internal::Command::default()
        };
        let request = internal::OperatorRequest {
            id: id.to_string(),
            command: Some(self.seal.seal_command(id, &command.encode_to_vec())),
        };
        let reply = self
            .bus
            .request(subject::admin(call), request.encode_to_vec().into(), TIMEOUT)
            .await
            .context(unanswered(call))?;
        let answer = self.seal.open_answer(id, &internal::Sealed::decode(reply)?)?;
        match internal::Answer::decode(answer)?.outcome {
            Some(Outcome::Response(response)) => Ok(R::decode(response)?),
            Some(Outcome::Status(status)) => bail!("{}", status::from_bytes(&status).message()),
            None => bail!("admission gave an empty answer"),
        }
    }
}

/// What no answer means: whoever only asked may ask again, but an act may have been done.
const fn unanswered(call: AdminCall) -> &'static str {
    match call {
        AdminCall::SettleCommand => {
            "no admission answered, and the command may be settled all the same: see `roadstead admission show ID`"
        }
        AdminCall::ReactivateWorkspace => {
            "no admission answered, and the workspace may be active all the same: see `roadstead workspace get NAME`"
        }
        AdminCall::MintSandboxToken | AdminCall::GetCommand | AdminCall::ListUnresolved => {
            "no admission answered; is one running?"
        }
    }
}
