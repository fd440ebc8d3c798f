//! What all sessions of this process share.

use std::sync::{Arc, Mutex};

use roadstead_bus::Bus;
use roadstead_bus::bucket::Bucket;
use roadstead_door::commands::Commands;
use roadstead_proto::sealing::CipherKeys;
use roadstead_service_kit::sandbox_token::TokenVerifier;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::config::{Delivery, Endpoint, Rebalance, Times};
use crate::logs::Logs;
use crate::metrics::Metrics;
use crate::observe::Holders;
use crate::peers::Peers;
use crate::sessions::Sessions;

/// One process of the role.
pub(crate) struct Bridge {
    /// The process's id, by which its liveness row and its sessions are known.
    pub(crate) id: Uuid,
    pub(crate) bus: Bus,
    pub(crate) commands: Commands,
    pub(crate) tokens: TokenVerifier,
    /// Open environments; the context is the sandbox's id, as 16 bytes.
    pub(crate) keys: Arc<CipherKeys>,
    pub(crate) snapshots: Bucket,
    pub(crate) sandboxes: Bucket,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) peers: Mutex<Peers>,
    /// Where supervisors that others hand over reach this process.
    pub(crate) advertise: Option<Endpoint>,
    pub(crate) rebalance: Rebalance,
    pub(crate) delivery: Delivery,
    pub(crate) logs: Logs,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) times: Times,
    /// Places for sessions, held until the end of one is reported.
    pub(crate) places: Arc<Semaphore>,
    /// Sessions that are opened at the same time, so that a storm of them is worked off and not drowned in.
    pub(crate) opening: Arc<Semaphore>,
    /// Entries that are read again at the same time.
    pub(crate) reads: Semaphore,
    /// Whether admission has heard of this process: sessions need a row of its to hang on.
    pub(crate) alive: watch::Sender<bool>,
    /// Sessions and what they owe.
    pub(crate) tasks: TaskTracker,
    /// Cancelled when the process stops: no session begins any more.
    pub(crate) drain: CancellationToken,
    /// Who holds the sessions of supervisors that speak to this process about them.
    pub(crate) holders: Holders,
}
