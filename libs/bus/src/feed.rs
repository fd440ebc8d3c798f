//! Feeds: what a bucket stored, repeated by the broker in the order of its revisions (D7).
//!
//! A feed message can be lost: the broker sends it once. A [`Feed`] follows a whole bucket and notices a loss by the
//! revisions, which rise one by one. A [`KeyFollower`] follows one key, notices no loss, and says when there may have
//! been one; its owner also reads the entry again from time to time.

use async_nats::Subscriber;
use bytes::Bytes;
use futures_util::StreamExt;
use roadstead_proto::bucket::Bucket;
use tokio::sync::watch;

use crate::bucket::{MARKER_REASON, OPERATION, Revision};
use crate::{Bus, SubscribeError};

const SEQUENCE: &str = "Nats-Sequence";

/// An entry as the bucket stored it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The key.
    pub key: String,
    /// None if the value was purged or ran out.
    pub value: Option<Bytes>,
    /// Its revision.
    pub revision: Revision,
}

/// What a feed tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// An entry was stored.
    Stored(Stored),
    /// Something may have been missed: what is known has to be read again. What follows is complete again.
    Gap,
}

/// A subscription to a whole bucket.
#[derive(Debug)]
pub struct Feed {
    subscriber: Subscriber,
    bucket: Bucket,
    order: Order,
    reconnects: watch::Receiver<u64>,
    /// Held back for the gap that was told first.
    held: Option<Stored>,
}

impl Feed {
    /// Follows `bucket` from now on: what is stored after this returns is told, or a gap is.
    ///
    /// # Errors
    ///
    /// If the connection was closed.
    pub async fn follow(bus: &Bus, bucket: Bucket) -> Result<Self, SubscribeError> {
        let reconnects = bus.reconnects();
        let subscriber = bus.subscribe_effective(bucket.whole_feed()).await?.inner;
        Ok(Self { subscriber, bucket, order: Order::default(), reconnects, held: None })
    }

    /// The next news; none when the connection was closed. It has to be asked for all the time: what is not drained is
    /// lost, and told as a gap.
    pub async fn next(&mut self) -> Option<News> {
        if let Some(stored) = self.held.take() {
            return Some(News::Stored(stored));
        }
        loop {
            let stored = read(self.bucket, self.subscriber.next().await?);
            // Also a broker that was wiped and counts anew is told as a gap, should its count happen to fit.
            if self.reconnects.has_changed().unwrap_or(false) {
                self.reconnects.mark_unchanged();
                self.order = Order::broken();
            }
            match stored {
                Some(stored) if self.order.fits(stored.revision) => return Some(News::Stored(stored)),
                Some(stored) => {
                    self.held = Some(stored);
                    return Some(News::Gap);
                }
                None => tracing::error!(bucket = self.bucket.name(), "a feed message cannot be read; left out"),
            }
        }
    }
}

/// Revisions of a whole bucket rise one by one.
#[derive(Debug, Default)]
pub(crate) struct Order {
    last: Option<u64>,
    broken: bool,
}

impl Order {
    fn broken() -> Self {
        Self { last: None, broken: true }
    }

    /// Takes note of a revision: whether nothing can have been missed before it.
    pub(crate) fn fits(&mut self, revision: Revision) -> bool {
        let fits = !self.broken && self.last.is_none_or(|last| revision.0 == last + 1);
        *self = Self { last: Some(revision.0), broken: false };
        fits
    }
}

/// A subscription to one key.
#[derive(Debug)]
pub struct KeyFollower {
    subscriber: Subscriber,
    bucket: Bucket,
    reconnects: watch::Receiver<u64>,
    slow: watch::Receiver<u64>,
}

impl KeyFollower {
    /// Follows `key` from now on. Whoever reads the entry after this returned misses nothing in between.
    ///
    /// # Errors
    ///
    /// If the key is malformed or the connection was closed.
    pub async fn follow(bus: &Bus, bucket: Bucket, key: &str) -> Result<Self, SubscribeError> {
        let (reconnects, slow) = (bus.reconnects(), bus.slow_consumers());
        let subscriber = bus.subscribe_effective(bucket.feed(key)).await?.inner;
        Ok(Self { subscriber, bucket, reconnects, slow })
    }

    /// The next news; none when the connection was closed. [`News::Gap`] is told after a reconnect and when the client
    /// dropped messages.
    pub async fn next(&mut self) -> Option<News> {
        loop {
            tokio::select! {
                message = self.subscriber.next() => match read(self.bucket, message?) {
                    Some(stored) => return Some(News::Stored(stored)),
                    None => tracing::error!(bucket = self.bucket.name(), "a feed message cannot be read; left out"),
                },
                Ok(()) = self.reconnects.changed() => return Some(News::Gap),
                Ok(()) = self.slow.changed() => return Some(News::Gap),
            }
        }
    }
}

fn read(bucket: Bucket, message: async_nats::Message) -> Option<Stored> {
    let key = bucket.key_of_feed(&message.subject).ok()?.to_owned();
    let headers = message.headers?;
    let revision = Revision(headers.get(SEQUENCE)?.as_str().parse().ok()?);
    let gone = headers.get(OPERATION).is_some() || headers.get(MARKER_REASON).is_some();
    Some(Stored { key, value: (!gone).then_some(message.payload), revision })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_in_order_fit() {
        let mut order = Order::default();
        assert!((7..20).all(|revision| order.fits(Revision(revision))));
    }

    #[test]
    fn a_step_of_any_other_width_is_told_once() {
        for step in [0, 2, 100] {
            let mut order = Order::default();
            assert!(order.fits(Revision(1000)));
            assert!(!order.fits(Revision(1000 + step)));
            assert!(order.fits(Revision(1001 + step)));
        }
        let mut order = Order::default();
        assert!(order.fits(Revision(1000)));
        assert!(!order.fits(Revision(1)), "the bucket was wiped");
        assert!(order.fits(Revision(2)));
    }

    #[test]
    fn a_broken_order_does_not_fit_whatever_comes() {
        let mut order = Order::broken();
        assert!(!order.fits(Revision(5)));
        assert!(order.fits(Revision(6)));
    }
}
