//! The two keys that concern a session: following them, and reading them again in case something was missed.

use std::sync::Arc;
use std::time::Duration;

use roadstead_bus::bucket::{Entry, ReadError};
use roadstead_bus::feed::KeyFollower;
use roadstead_proto::bucket::{Bucket, SandboxKey};
use uuid::Uuid;

use crate::bridge::Bridge;

/// How long the broker may take to put subscriptions into effect.
const SUBSCRIBE: Duration = Duration::from_secs(5);

/// Subscriptions in effect.
pub(crate) struct Subscribed {
    pub(crate) sandbox_key: String,
    /// What the projection shows.
    pub(crate) sandbox: KeyFollower,
    /// None: nothing is pushed.
    pub(crate) snapshots: Option<KeyFollower>,
}

/// Entries as they stand.
pub(crate) struct Reread {
    /// None: it was not asked for.
    pub(crate) snapshot: Option<Result<Entry, ReadError>>,
    pub(crate) sandbox: Result<Entry, ReadError>,
}

/// Subscribes to what concerns the session. None if the broker does not answer.
pub(crate) async fn subscribe(bridge: &Bridge, sandbox_id: Uuid, workspace_id: &str, push: bool) -> Option<Subscribed> {
    let workspace_id = Uuid::try_parse(workspace_id).ok()?;
    let sandbox_key = SandboxKey::Sandbox { workspace_id, sandbox_id }.to_string();
    let snapshot_key = sandbox_id.to_string();
    let following = async {
        let sandbox = KeyFollower::follow(&bridge.bus, Bucket::Sandboxes, &sandbox_key);
        let snapshots = async {
            match push {
                true => KeyFollower::follow(&bridge.bus, Bucket::Snapshots, &snapshot_key).await.map(Some),
                false => Ok(None),
            }
        };
        tokio::try_join!(sandbox, snapshots)
    };
    match tokio::time::timeout(SUBSCRIBE, following).await {
        Ok(Ok((sandbox, snapshots))) => Some(Subscribed { sandbox_key, sandbox, snapshots }),
        Ok(Err(error)) => {
            tracing::warn!(%error, "a session's subscriptions failed");
            None
        }
        Err(_) => None,
    }
}

/// Reads the entries from their leader, a bounded number of sessions at a time; the snapshot only if `push`.
pub(crate) async fn read_again(bridge: Arc<Bridge>, sandbox_key: String, sandbox_id: Uuid, push: bool) -> Reread {
    // The semaphore is never closed.
    let _permit = bridge.reads.acquire().await;
    let snapshot = async {
        match push {
            true => Some(bridge.snapshots.read_from_leader(&sandbox_id.to_string()).await),
            false => None,
        }
    };
    let (snapshot, sandbox) = tokio::join!(snapshot, bridge.sandboxes.read_from_leader(&sandbox_key));
    bridge.metrics.rereads.inc();
    Reread { snapshot, sandbox }
}
