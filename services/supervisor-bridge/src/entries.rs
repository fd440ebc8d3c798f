//! The two keys that concern a session: following its snapshots, and reading both again in case something was missed.
//! The other key is followed for all sessions at once, by the projection.

use std::sync::Arc;
use std::time::Duration;

use roadstead_bus::bucket::{Entry, ReadError};
use roadstead_bus::feed::KeyFollower;
use roadstead_proto::bucket::Bucket;
use uuid::Uuid;

use crate::bridge::Bridge;

/// How long the broker may take to put a subscription into effect.
const SUBSCRIBE: Duration = Duration::from_secs(5);

/// Entries as they stand.
pub(crate) struct Reread {
    /// None: it was not asked for.
    pub(crate) snapshot: Option<Result<Entry, ReadError>>,
    pub(crate) sandbox: Result<Entry, ReadError>,
}

/// Follows the sandbox's snapshots. None if the broker does not answer.
pub(crate) async fn follow(bridge: &Bridge, sandbox_id: Uuid) -> Option<KeyFollower> {
    let key = sandbox_id.to_string();
    let following = KeyFollower::follow(&bridge.bus, Bucket::Snapshots, &key);
    match tokio::time::timeout(SUBSCRIBE, following).await {
        Ok(Ok(snapshots)) => Some(snapshots),
        Ok(Err(error)) => {
            tracing::warn!(%error, "a session's subscription failed");
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
