//! A beat a second in each bucket that this role feeds: so that an edge can tell silence from quiet (D7).

use std::time::Duration;

use bytes::Bytes;
use roadstead_bus::Bus;
use roadstead_bus::bucket::Bucket;
use roadstead_proto::bucket::{Bucket as Name, RightsKey, SandboxKey};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const EVERY: Duration = Duration::from_secs(1);
/// A replica that went leaves no key behind.
const LIFE: Duration = Duration::from_secs(10);

/// Beats until told to stop. A beat that fails is not made up for: the next one comes soon.
pub(crate) async fn run(bus: Bus, replica: Uuid, stop: CancellationToken) {
    let sandboxes = (Bucket::new(&bus, Name::Sandboxes), SandboxKey::Beat(replica).to_string());
    let rights = (Bucket::new(&bus, Name::Rights), RightsKey::Beat(replica).to_string());
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut failing = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let beat = |(bucket, key): &(Bucket, String)| {
            let (bucket, key) = (bucket.clone(), key.clone());
            async move { bucket.put_with_ttl(&key, Bytes::from_static(b"beat"), LIFE).await }
        };
        let failed = match tokio::join!(beat(&sandboxes), beat(&rights)) {
            (Ok(_), Ok(_)) => None,
            (Err(error), _) | (_, Err(error)) => Some(error),
        };
        // Only the first of a series is worth a line.
        if let Some(error) = failed.as_ref().filter(|_| !failing) {
            tracing::warn!(%error, "beats do not reach the broker");
        }
        failing = failed.is_some();
    }
}
