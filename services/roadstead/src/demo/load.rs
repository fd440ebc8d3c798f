//! Many mutations in flight while an admission is killed: none may fail, none may be done twice.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, bail};
use roadstead_proto::api::v1;
use tokio::task::JoinSet;

use super::target::Target;
use crate::client::connect::Client;
use crate::client::{request_id, scope};

/// How many are sent.
pub(crate) const MUTATIONS: usize = 200;
/// How many have to be answered before the kill, so that it falls among the rest.
const ANSWERED_BEFORE: usize = 20;

/// What came of it.
pub(crate) struct Tally {
    pub(crate) killed: String,
    pub(crate) failed: usize,
    pub(crate) doubled: usize,
    pub(crate) missing: usize,
    pub(crate) unasked: usize,
}

/// Creates sandboxes through all `clients` at once and kills an admission on the way.
pub(crate) async fn run(target: &Target, clients: &[Client], workspace: &str) -> anyhow::Result<Tally> {
    let names: BTreeSet<String> = (0..MUTATIONS).map(|number| format!("load-{number}")).collect();
    let mut calls = JoinSet::new();
    for (name, client) in names.iter().zip(clients.iter().cycle()) {
        let mut client = client.clone();
        let request = v1::CreateSandboxRequest {
            workspace_scope: scope(workspace),
            name: name.clone(),
            spec: Some(v1::SandboxSpec::default()),
            request_id: request_id(),
            ..Default::default()
        };
        calls.spawn(async move { client.create_sandbox(request).await.map(drop) });
    }
    let (mut answered, mut failed, mut killed) = (0, Vec::new(), None);
    while let Some(call) = calls.join_next().await {
        answered += 1;
        if let Err(status) = call? {
            failed.push(status);
        }
        if answered == ANSWERED_BEFORE {
            killed = Some(target.kill_an_admission().await?);
        }
    }
    if let Some(status) = failed.first() {
        tracing::error!(%status, failed = failed.len(), "mutations failed");
    }
    let held = target.sandboxes_in_postgres(workspace).await?;
    let loaded: Vec<&String> = held.iter().filter(|name| name.starts_with("load-")).collect();
    let distinct: BTreeSet<String> = loaded.iter().map(|name| (*name).clone()).collect();
    Ok(Tally {
        killed: killed.context("nothing was killed")?,
        failed: failed.len(),
        doubled: loaded.len() - distinct.len(),
        missing: names.difference(&distinct).count(),
        unasked: distinct.difference(&names).count(),
    })
}

impl Tally {
    /// What was seen, or an error if it is not what was promised.
    pub(crate) fn verdict(&self) -> anyhow::Result<String> {
        let Self { killed, failed, doubled, missing, unasked } = self;
        let text = format!("{killed} killed; {MUTATIONS} sent, failed {failed}, doubled {doubled}, missing {missing}");
        if failed + doubled + missing + unasked > 0 {
            bail!("{text}, unasked for {unasked}");
        }
        Ok(text)
    }
}

/// Removes what `run` created.
pub(crate) async fn clean(clients: &[Client], workspace: &str) -> anyhow::Result<()> {
    let mut calls = JoinSet::new();
    for (number, client) in (0..MUTATIONS).zip(clients.iter().cycle()) {
        let mut client = client.clone();
        let request = v1::DeleteSandboxRequest {
            workspace_scope: scope(workspace),
            name: format!("load-{number}"),
            request_id: request_id(),
            ..Default::default()
        };
        calls.spawn(async move { client.delete_sandbox(request).await.map(drop) });
    }
    let all = async {
        while let Some(call) = calls.join_next().await {
            call??;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(Duration::from_secs(120), all).await.context("the sandboxes were not deleted in time")?
}
