//! `run.json` in the data folder: what runs and where it listens, for people and for the demo.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::operate::keys::write_private;

/// Name of the file in the data folder.
const NAME: &str = "run.json";

/// What runs. Written when all is ready and again when a process was started anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunFile {
    /// The process that keeps all others.
    pub(crate) pid: u32,
    pub(crate) nats_url: String,
    pub(crate) database_url: String,
    pub(crate) replicas: Vec<RunningReplica>,
}

/// One replica of a role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunningReplica {
    pub(crate) role: String,
    pub(crate) replica: usize,
    /// The same for all if they share one process; none while it is being started again.
    pub(crate) pid: Option<u32>,
    pub(crate) admin: SocketAddr,
    /// Where a door listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) listen: Option<SocketAddr>,
}

impl RunFile {
    pub(crate) fn save(&self, data: &Path) -> anyhow::Result<()> {
        write_private(&data.join(NAME), &serde_json::to_vec_pretty(self)?)
    }

    pub(crate) fn load(data: &Path) -> anyhow::Result<Self> {
        let file = data.join(NAME);
        let text = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is damaged", file.display()))
    }

    pub(crate) fn remove(data: &Path) {
        // That it is not there is what is wanted.
        drop(std::fs::remove_file(data.join(NAME)));
    }
}
