//! Many supervisors, each with a sandbox and a connection of its own.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use roadstead_proto::api::sandbox::SettingValue;
use roadstead_proto::api::sandbox::setting_value::Value;
use roadstead_proto::api::v1::{SandboxSpec, UpdateConfigRequest};
use roadstead_supervisor::{Behaviour, TokenSource, default_policy};

use super::supervised::Supervised;
use crate::bench::figure::Figure;
use crate::bench::measure::Ran;
use crate::bench::stage::{Stage, WORKSPACE};
use crate::client::connect::Client;
use crate::operate::operator::{Connected, Operator};

/// Calls on their way at a time.
pub(super) const AT_A_TIME: usize = 32;
/// Something that no sandbox here sets for itself, since what is set globally cannot be set there.
const SETTING: &str = "agent_policy_proposals_enabled";

/// Supervisors with their sessions, and sandboxes for more.
pub(crate) struct Fleet {
    bridge: String,
    operator: Connected,
    sandboxes: usize,
    members: Vec<Member>,
    /// Changes all of them.
    client: Client,
    on: bool,
}

struct Member {
    supervised: Supervised,
    stuck: bool,
    /// The configuration that it had before the last change of all.
    before: u64,
}

impl Fleet {
    /// Creates so many sandboxes, which have a policy. Nobody supervises them yet.
    pub(crate) async fn of(stage: &Stage, sandboxes: u32) -> anyhow::Result<Self> {
        let spec = SandboxSpec { policy: Some(default_policy()), ..Default::default() };
        let creating = (0..sandboxes as usize).map(|at| stage.create_sandbox(at, sandbox(at), spec.clone()));
        stream::iter(creating).buffer_unordered(AT_A_TIME).try_collect::<()>().await?;
        Ok(Self {
            bridge: stage.doors.bridge.clone(),
            operator: Operator::of(stage.target.folder())?.connect().await?,
            sandboxes: sandboxes as usize,
            members: Vec::new(),
            client: stage.busy.first().context("no edge runs")?.clone(),
            on: false,
        })
    }

    /// How many there can be.
    pub(crate) const fn sandboxes(&self) -> usize {
        self.sandboxes
    }

    /// Starts more supervisors, until there are so many; each has its configuration.
    pub(crate) async fn grow(&mut self, to: usize) -> anyhow::Result<()> {
        let starting = (self.members.len()..to).map(|at| start(&self.operator, &self.bridge, sandbox(at)));
        let started: Vec<_> = stream::iter(starting).buffer_unordered(AT_A_TIME).try_collect().await?;
        let member = |supervised| Member { supervised, stuck: false, before: 0 };
        self.members.extend(started.into_iter().map(member));
        Ok(())
    }

    /// Changes a setting of the deployment, and waits until every supervisor that is not stuck has it: how long that took
    /// each after the answer.
    pub(crate) async fn change(&mut self, what: &'static str) -> anyhow::Result<Figure> {
        for member in &mut self.members {
            member.before = member.supervised.newest().config.number;
        }
        self.on = !self.on;
        let request = UpdateConfigRequest {
            global: true,
            setting_key: SETTING.to_owned(),
            setting_value: Some(SettingValue { value: Some(Value::BoolValue(self.on)) }),
            ..Default::default()
        };
        self.client.update_config(request).await?;
        let answered = Instant::now();
        self.current(what, false, answered).await
    }

    /// Waits until every supervisor that is stuck, or not, has the last change: how long that took each.
    async fn current(&mut self, what: &'static str, stuck: bool, since: Instant) -> anyhow::Result<Figure> {
        let mut took = Vec::new();
        for member in self.members.iter_mut().filter(|member| member.stuck == stuck) {
            let before = member.before;
            let seen = member.supervised.until(|seen| seen.config.number != before).await;
            let seen = seen.context("a change of the whole fleet did not arrive")?;
            took.push(seen.config.at.saturating_duration_since(since));
        }
        Ok(of_all(what, took))
    }

    /// Every `nth` stops reading.
    pub(crate) fn stop_reading(&mut self, nth: usize) {
        for member in self.members.iter_mut().step_by(nth) {
            member.stuck = true;
            member.supervised.behave(Behaviour::StopReading);
        }
    }

    /// Those that had stopped read again, and get the last change: how long that took each.
    pub(crate) async fn read_again(&mut self, what: &'static str) -> anyhow::Result<Figure> {
        let again = Instant::now();
        for member in self.members.iter().filter(|member| member.stuck) {
            member.supervised.behave(Behaviour::Apply);
        }
        let current = self.current(what, true, again).await?;
        self.members.iter_mut().for_each(|member| member.stuck = false);
        Ok(current)
    }

    /// How many sessions each had so far.
    pub(crate) fn sessions(&self) -> Vec<u64> {
        self.members.iter().map(|member| member.supervised.newest().sessions.number).collect()
    }

    /// Waits until each had another session: how long that took.
    pub(crate) async fn connected_again(
        &mut self,
        what: &'static str,
        sessions: &[u64],
        since: Instant,
    ) -> anyhow::Result<Figure> {
        let mut took = Vec::new();
        for (member, before) in self.members.iter_mut().zip(sessions) {
            let seen = member.supervised.until(|seen| seen.sessions.number > *before).await;
            let seen = seen.context("a supervisor has no session again")?;
            took.push(seen.sessions.at.saturating_duration_since(since));
        }
        Ok(of_all(what, took))
    }
}

async fn start(operator: &Connected, bridge: &str, sandbox: String) -> anyhow::Result<Supervised> {
    let token = operator.mint(WORKSPACE, &sandbox).await?.token;
    Supervised::start(bridge, &sandbox, TokenSource::Given(token.into())).await
}

/// The figure of something that all did once.
fn of_all(what: &'static str, took: Vec<Duration>) -> Figure {
    let time = took.iter().max().copied().unwrap_or_default();
    Figure::of(what, took.len(), Ran { took, time, errors: BTreeMap::new() })
}

fn sandbox(number: usize) -> String {
    format!("fleet-{number}")
}
