//! What the projection shows of sandboxes: one subscription for all sessions of this process, as an edge has one for all
//! its watches. A session of its own subscription would hold twice as much memory, most of it for messages that hardly
//! ever come.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use roadstead_bus::SubscribeError;
use roadstead_bus::feed::{Feed, News, Stored};
use roadstead_proto::bucket::{Bucket, SandboxKey};
use roadstead_proto::internal::SandboxEntry;
use roadstead_service_kit::readiness::Latch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::bridge::Bridge;

/// Follows it until `stop`. The latch is released at the first message: a broker that does not permit the subscription, for
/// want of new permissions, says so to nobody who waits.
///
/// # Errors
///
/// If the connection to the broker was closed.
pub(crate) async fn run(bridge: Arc<Bridge>, latch: Latch, stop: CancellationToken) -> Result<(), SubscribeError> {
    stop.run_until_cancelled(follow(&bridge, latch)).await.unwrap_or(Ok(()))
}

async fn follow(bridge: &Bridge, latch: Latch) -> Result<(), SubscribeError> {
    let mut feed = Feed::follow(&bridge.bus, Bucket::Sandboxes).await?;
    // What was stored before the subscription stood was told to nobody here.
    bridge.sessions.missed_something();
    let mut latch = Some(latch);
    // A gap is told with the first message after it. Beats come each second, as long as anybody feeds the projection.
    while let Some(news) = feed.next().await {
        latch.take().into_iter().for_each(Latch::release);
        match news {
            News::Stored(stored) => heard(bridge, stored),
            News::Gap => bridge.sessions.missed_something(),
        }
    }
    Err(SubscribeError::Closed)
}

fn heard(bridge: &Bridge, Stored { key, value, .. }: Stored) {
    match (key.parse(), value) {
        (Ok(SandboxKey::Sandbox { sandbox_id, .. }), Some(value)) => shown(bridge, sandbox_id, value),
        // Whatever is purged was shown to be gone before.
        (Ok(_), _) => {}
        (Err(_), _) => {
            bridge.metrics.not_understood.inc();
            tracing::error!(key, "a key of the projection is left out");
        }
    }
}

/// Lets the sessions of the sandbox know of it. Few are held here, so it is decoded only then.
pub(crate) fn shown(bridge: &Bridge, sandbox_id: Uuid, value: Bytes) {
    if !bridge.sessions.has(sandbox_id) {
        return;
    }
    match SandboxEntry::decode(value) {
        Ok(entry) => bridge.sessions.shown(sandbox_id, &entry),
        Err(_) => {
            bridge.metrics.not_understood.inc();
            tracing::error!(%sandbox_id, "a projected sandbox cannot be decoded; left out");
        }
    }
}
