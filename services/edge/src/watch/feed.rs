//! The task that follows one feed of the watch role, all of it and all the time.

use std::time::Duration;

use roadstead_bus::Bus;
use roadstead_bus::feed::{Feed, News, Stored};
use roadstead_proto::bucket::Bucket;
use roadstead_service_kit::readiness::Latch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::metrics::Metrics;

/// Every watch replica beats once a second; without any for this long, the feed is taken for broken.
const SILENCE: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// With [`SILENCE`] less than the bound within which rights are looked at again.
const LONGEST_PAUSE: Duration = Duration::from_millis(1500);

/// What is told by a feed. Neither call may take long: what is not drained is lost.
pub(crate) trait Listener: Send + 'static {
    /// The bucket behind the feed.
    const BUCKET: Bucket;

    /// Something was stored.
    fn stored(&self, stored: Stored) -> Heard;

    /// Something may have been missed after this moment: whatever is known may be out of date. Once a feed is silent
    /// nobody knows what follows, and this is called again; otherwise what follows is complete again.
    fn missed(&self, after: Instant);
}

/// What a message was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A sign that the feed works.
    Beat,
    Other,
}

/// The feed cannot be followed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection to the broker was closed")]
pub(crate) struct Closed;

/// Follows until told to stop. The latch is released at the first beat: from then on changes arrive.
///
/// # Errors
///
/// If the connection was closed for good.
pub(crate) async fn follow<L: Listener>(
    bus: Bus,
    listener: L,
    metrics: Metrics,
    latch: Latch,
    stop: CancellationToken,
) -> Result<(), Closed> {
    stop.run_until_cancelled(follow_for_ever(bus, listener, metrics, latch)).await.unwrap_or(Ok(()))
}

async fn follow_for_ever<L: Listener>(bus: Bus, listener: L, metrics: Metrics, latch: Latch) -> Result<(), Closed> {
    let bucket = L::BUCKET.name();
    let mut latch = Some(latch);
    let mut pause = FIRST_PAUSE;
    // When the last message came that followed on those before.
    let mut whole = Instant::now();
    metrics.heard(bucket, Heard::Beat, whole);
    loop {
        let mut feed = Feed::follow(&bus, L::BUCKET).await.map_err(|_| Closed)?;
        // Whatever was stored before the subscription stood was told to nobody here.
        listener.missed(whole);
        let mut silent_at = Instant::now() + SILENCE;
        while let Ok(news) = tokio::time::timeout_at(silent_at, feed.next()).await {
            match news.ok_or(Closed)? {
                News::Gap => {
                    tracing::info!(bucket, "the feed may have a gap; what is watched is read again");
                    metrics.gap(bucket);
                    listener.missed(whole);
                }
                News::Stored(stored) => {
                    let heard = listener.stored(stored);
                    whole = Instant::now();
                    metrics.heard(bucket, heard, whole);
                    if heard == Heard::Beat {
                        silent_at = whole + SILENCE;
                        pause = FIRST_PAUSE;
                        if let Some(latch) = latch.take() {
                            latch.release();
                        }
                    }
                }
            }
        }
        tracing::warn!(bucket, "the feed is silent; subscribing again");
        metrics.silence(bucket);
        listener.missed(whole);
        drop(feed);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
