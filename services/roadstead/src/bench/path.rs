//! The calls that are measured, through an edge.

use roadstead_proto::api::sandbox::setting_value::Value;
use roadstead_proto::api::sandbox::{GetSandboxConfigRequest, SettingValue};
use roadstead_proto::api::v1;

use super::WORKSPACE;
use super::measure::AsyncCall;
use crate::client::connect::Client;
use crate::client::scope;

/// Name of a caller's sandbox.
pub(crate) fn sandbox(number: usize) -> String {
    format!("box-{number}")
}

/// Turns a setting of the caller's sandbox on and off.
pub(crate) struct Mutate {
    client: Client,
    request: v1::UpdateConfigRequest,
    with_id: bool,
    on: bool,
}

pub(crate) fn mutate(clients: &[Client], at: usize, request_id: String) -> Mutate {
    let with_id = !request_id.is_empty();
    Mutate { client: clients[at % clients.len()].clone(), request: toggle(at, request_id), with_id, on: false }
}

/// The request that a caller's sandbox is changed with; its value is set for each call.
pub(crate) fn toggle(at: usize, request_id: String) -> v1::UpdateConfigRequest {
    v1::UpdateConfigRequest {
        workspace_scope: scope(WORKSPACE),
        sandbox: sandbox(at),
        setting_key: "ocsf_json_enabled".to_owned(),
        request_id,
        ..Default::default()
    }
}

pub(crate) fn value(on: bool) -> Option<SettingValue> {
    Some(SettingValue { value: Some(Value::BoolValue(on)) })
}

impl Mutate {
    /// Changes it; the revision of the settings after that.
    pub(crate) async fn change(&mut self) -> anyhow::Result<u64> {
        self.on = !self.on;
        self.request.setting_value = value(self.on);
        if self.with_id {
            self.request.request_id = crate::client::request_id();
        }
        Ok(self.client.update_config(self.request.clone()).await?.into_inner().settings_revision)
    }
}

impl AsyncCall for Mutate {
    async fn call(&mut self) -> anyhow::Result<()> {
        self.change().await.map(drop)
    }
}

pub(crate) struct ReadConfig {
    client: Client,
    request: GetSandboxConfigRequest,
}

pub(crate) fn read_config(clients: &[Client], at: usize) -> ReadConfig {
    let request = GetSandboxConfigRequest { workspace_scope: scope(WORKSPACE), name: sandbox(at) };
    ReadConfig { client: clients[at % clients.len()].clone(), request }
}

impl AsyncCall for ReadConfig {
    async fn call(&mut self) -> anyhow::Result<()> {
        self.client.get_sandbox_config(self.request.clone()).await?;
        Ok(())
    }
}
