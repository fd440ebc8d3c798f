//! The whole stream as it grows: what the broker stored, repeated in order and checked for gaps.

use async_nats::{Message, Subscriber};
use futures_util::StreamExt as _;
use roadstead_proto::activity::{self, Activity};
use tokio::sync::watch;

use super::{Line, SEQUENCE, TIME};
use crate::bucket::Revision;
use crate::feed::Order;
use crate::{Bus, SubscribeError};

/// Sequence of the message before on the same subject.
const BEFORE: &str = "Nats-Last-Sequence";

/// What the feed tells.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// A message was stored. `before` is the sequence of the one before it on the same subject, 0 if none was left.
    Stored { line: Line, before: u64 },
    /// Something may have been missed. What follows is complete again.
    Gap,
}

/// A subscription to all of the feed.
#[derive(Debug)]
pub struct Feed {
    subscriber: Subscriber,
    order: Order,
    reconnects: watch::Receiver<u64>,
    slow: watch::Receiver<u64>,
    /// Held back for the gap that was told first.
    held: Option<News>,
}

impl Feed {
    /// Follows from now on: what is stored after this returns is told, or a gap is.
    ///
    /// # Errors
    ///
    /// If the connection was closed.
    pub async fn follow(bus: &Bus) -> Result<Self, SubscribeError> {
        let (reconnects, slow) = (bus.reconnects(), bus.slow_consumers());
        let subscriber = bus.subscribe_effective(activity::WHOLE_FEED).await?.inner;
        Ok(Self { subscriber, order: Order::default(), reconnects, slow, held: None })
    }

    /// The next news; none when the connection was closed. It has to be asked for all the time: what is not drained is
    /// lost, and told as a gap.
    pub async fn next(&mut self) -> Option<News> {
        if let Some(news) = self.held.take() {
            return Some(news);
        }
        loop {
            tokio::select! {
                // First: a message that came after a reconnect is told after the gap.
                biased;
                Ok(()) = self.reconnects.changed() => return Some(self.broken()),
                Ok(()) = self.slow.changed() => return Some(self.broken()),
                message = self.subscriber.next() => match read(message?) {
                    Some((news, sequence)) if self.order.fits(Revision(sequence)) => return Some(news),
                    Some((news, _)) => {
                        self.held = Some(news);
                        return Some(News::Gap);
                    }
                    None => tracing::error!("a message of the feed of activity cannot be read; left out"),
                },
            }
        }
    }

    fn broken(&mut self) -> News {
        self.order = Order::default();
        News::Gap
    }
}

fn read(message: Message) -> Option<(News, u64)> {
    let of = Activity::from_feed(&message.subject).ok()?;
    let headers = message.headers?;
    let sequence = headers.get(SEQUENCE)?.as_str().parse().ok()?;
    let before = headers.get(BEFORE)?.as_str().parse().ok()?;
    let stored = headers.get(TIME)?.as_str().parse().ok()?;
    let line = Line { sequence, of, stored, payload: message.payload };
    Some((News::Stored { line, before }, sequence))
}
