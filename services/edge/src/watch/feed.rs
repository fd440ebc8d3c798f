//! The task that follows the projection's feed, all of it and all the time, and keeps the hub up to date.

use std::time::Duration;

use prost::Message as _;
use roadstead_bus::Bus;
use roadstead_bus::feed::{Feed, News, Stored};
use roadstead_proto::bucket::{Bucket, SandboxKey};
use roadstead_proto::internal::SandboxEntry;
use roadstead_service_kit::readiness::Latch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::entries::Entries;
use super::hub::Hub;
use super::shown::Shown;

/// Every watch replica beats once a second; without any for this long, the feed is taken for broken.
const SILENCE: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Follows the feed for the hub.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) bus: Bus,
    pub(crate) hub: Hub,
    pub(crate) entries: Entries,
}

/// The feed cannot be followed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection to the broker was closed")]
pub(crate) struct Closed;

impl Follower {
    /// Follows until it is told to stop. The latch is released at the first beat: from then on changes arrive.
    ///
    /// # Errors
    ///
    /// If the connection was closed for good.
    pub(crate) async fn run(self, latch: Latch, stop: CancellationToken) -> Result<(), Closed> {
        stop.run_until_cancelled(self.follow(latch)).await.unwrap_or(Ok(()))
    }

    async fn follow(&self, latch: Latch) -> Result<(), Closed> {
        let mut latch = Some(latch);
        let mut pause = FIRST_PAUSE;
        loop {
            let mut feed = Feed::follow(&self.bus, Bucket::Sandboxes).await.map_err(|_| Closed)?;
            // Whatever changed before the subscription stood was told to nobody here.
            self.entries.refresh(self.hub.watched());
            let mut silent_at = Instant::now() + SILENCE;
            while let Ok(news) = tokio::time::timeout_at(silent_at, feed.next()).await {
                if self.take(news.ok_or(Closed)?) == Heard::Beat {
                    silent_at = Instant::now() + SILENCE;
                    pause = FIRST_PAUSE;
                    if let Some(latch) = latch.take() {
                        latch.release();
                    }
                }
            }
            tracing::warn!("the feed of sandboxes is silent; subscribing again");
            drop(feed);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn take(&self, news: News) -> Heard {
        let Stored { key, value, .. } = match news {
            News::Stored(stored) => stored,
            News::Gap => {
                tracing::warn!("the feed of sandboxes has a gap; reading what is watched");
                self.entries.refresh(self.hub.watched());
                return Heard::Other;
            }
        };
        match (key.parse(), value) {
            (Ok(SandboxKey::Beat(_)), _) => return Heard::Beat,
            (Ok(SandboxKey::Sandbox { sandbox_id, .. }), value) if self.hub.is_watched(&sandbox_id) => {
                match value.map(SandboxEntry::decode) {
                    Some(Ok(entry)) => self.hub.offer(sandbox_id, Shown::of(entry)),
                    // Purged, or not to be read: Postgres knows.
                    Some(Err(_)) | None => self.entries.refresh([sandbox_id]),
                }
            }
            (Ok(SandboxKey::Sandbox { .. }), _) => {}
            (Err(_), _) => tracing::error!("the feed of sandboxes has a key that cannot be read; left out"),
        }
        Heard::Other
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Beat,
    Other,
}
