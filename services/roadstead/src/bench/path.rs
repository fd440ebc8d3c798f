//! The calls that are measured, through an edge.

use roadstead_proto::api::sandbox::setting_value::Value;
use roadstead_proto::api::sandbox::{GetSandboxConfigRequest, SettingValue};
use roadstead_proto::api::v1;

use super::measure::AsyncCall;
use super::stage::{Stage, WORKSPACE, subject};
use crate::client::connect::Client;
use crate::client::{request_id, scope};

/// Which callers change which sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// Each is a user of its own with a sandbox of its own.
    Apart,
    /// All are one user; each has a sandbox of its own.
    Busy,
    /// Each is a user of its own; all change the same sandbox.
    Hot,
}

/// A load: who changes what, and whether each change has a request id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    who: Who,
    pub(crate) with_id: bool,
}

impl Load {
    pub(crate) const fn apart(with_id: bool) -> Self {
        Self { who: Who::Apart, with_id }
    }

    pub(crate) const fn busy(with_id: bool) -> Self {
        Self { who: Who::Busy, with_id }
    }

    pub(crate) const fn hot(with_id: bool) -> Self {
        Self { who: Who::Hot, with_id }
    }

    pub(crate) fn is_apart(self) -> bool {
        self.who == Who::Apart
    }

    pub(crate) const fn what(self) -> &'static str {
        match (self.who, self.with_id) {
            (Who::Apart, false) => "mutation",
            (Who::Apart, true) => "mutation with a request id",
            (Who::Busy, false) => "mutation, one busy caller",
            (Who::Busy, true) => "mutation with a request id, one busy caller",
            (Who::Hot, false) => "mutation, one hot sandbox",
            (Who::Hot, true) => "mutation with a request id, one hot sandbox",
        }
    }

    /// The same without doors and broker.
    pub(crate) const fn floor(self) -> &'static str {
        match (self.who, self.with_id) {
            (Who::Apart, false) => "  its floor: two flights",
            (Who::Apart, true) => "  its floor: two flights with a claim",
            (Who::Busy, false) => "  its floor: two flights, one caller",
            (Who::Busy, true) => "  its floor: two flights with a claim, one caller",
            (Who::Hot, false) => "  its floor: two flights, one sandbox",
            (Who::Hot, true) => "  its floor: two flights with a claim, one sandbox",
        }
    }

    /// Name of the user that caller `at` is.
    pub(crate) fn subject(self, at: usize) -> String {
        match self.who {
            Who::Busy => "busy".to_owned(),
            Who::Apart | Who::Hot => subject(at),
        }
    }

    /// The sandbox that it changes.
    pub(crate) fn sandbox(self, at: usize) -> String {
        match self.who {
            Who::Hot => sandbox(0),
            Who::Apart | Who::Busy => sandbox(at),
        }
    }

    fn client(self, stage: &Stage, at: usize) -> Client {
        match self.who {
            Who::Busy => stage.busy[at % stage.busy.len()].clone(),
            Who::Apart | Who::Hot => stage.users[at].clone(),
        }
    }
}

/// Name of a caller's sandbox.
pub(crate) fn sandbox(number: usize) -> String {
    format!("box-{number}")
}

/// The n-th change of a caller: turns a setting on and off.
pub(crate) fn toggle(load: Load, at: usize, on: bool) -> v1::UpdateConfigRequest {
    v1::UpdateConfigRequest {
        workspace_scope: scope(WORKSPACE),
        sandbox: load.sandbox(at),
        setting_key: "ocsf_json_enabled".to_owned(),
        setting_value: Some(SettingValue { value: Some(Value::BoolValue(on)) }),
        request_id: if load.with_id { request_id() } else { String::new() },
        ..Default::default()
    }
}

pub(crate) struct Mutate {
    client: Client,
    load: Load,
    at: usize,
    on: bool,
}

pub(crate) fn mutate(stage: &Stage, load: Load, at: usize) -> Mutate {
    Mutate { client: load.client(stage, at), load, at, on: false }
}

impl Mutate {
    /// Changes it; the revision of the settings after that.
    pub(crate) async fn change(&mut self) -> anyhow::Result<u64> {
        self.on = !self.on;
        let request = toggle(self.load, self.at, self.on);
        Ok(self.client.update_config(request).await?.into_inner().settings_revision)
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

pub(crate) fn read_config(stage: &Stage, at: usize) -> ReadConfig {
    let request = GetSandboxConfigRequest { workspace_scope: scope(WORKSPACE), name: sandbox(at) };
    ReadConfig { client: stage.users[at].clone(), request }
}

impl AsyncCall for ReadConfig {
    async fn call(&mut self) -> anyhow::Result<()> {
        self.client.get_sandbox_config(self.request.clone()).await?;
        Ok(())
    }
}
