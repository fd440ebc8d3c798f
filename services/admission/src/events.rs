//! Platform events (D8): what a commit did to a sandbox, told to those who watch it.
//!
//! They are drawn from the rows before and after a commit and published by whoever committed, once, when it has: so each
//! state of a sandbox gives its events at most once, and none tells of what was not committed. They are news, not state:
//! nobody waits for them, and a replica that dies or a broker that is away loses them.

pub mod change;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use roadstead_bus::Bus;
use roadstead_proto::activity::{Activity, Kind};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use change::Happened;

/// Events that wait for the broker. What does not fit is lost, and counted.
const QUEUE: usize = 4096;
/// Events that are published at a time.
const TOGETHER: usize = 64;
/// How long those that wait at the end are still published.
const DRAIN: Duration = Duration::from_secs(2);

/// Where commits hand over what happened. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Events {
    queue: mpsc::Sender<Happened>,
    metrics: Arc<Metrics>,
}

/// Publishes what was handed over.
#[derive(Debug)]
pub struct Publisher {
    bus: Bus,
    queue: mpsc::Receiver<Happened>,
    metrics: Arc<Metrics>,
}

impl Events {
    /// A publisher and the way to it.
    #[must_use]
    pub fn new(bus: Bus, metrics: Arc<Metrics>) -> (Self, Publisher) {
        let (sender, queue) = mpsc::channel(QUEUE);
        (Self { queue: sender, metrics: Arc::clone(&metrics) }, Publisher { bus, queue, metrics })
    }

    /// Hands over what a commit did. Never waits.
    pub fn committed(&self, happened: Vec<Happened>) {
        for happened in happened {
            if self.queue.try_send(happened).is_err() {
                self.metrics.events_lost.inc();
            }
        }
    }
}

impl Publisher {
    /// Publishes until `stop`, each sandbox's events in the order of the commits; then what is still waiting, for a few
    /// seconds.
    ///
    /// # Errors
    /// Never.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Infallible> {
        let mut taken = Vec::with_capacity(TOGETHER);
        let mut ends = None;
        while ends.is_none_or(|ends| Instant::now() < ends) {
            tokio::select! {
                count = self.queue.recv_many(&mut taken, TOGETHER) => match count {
                    0 => break,
                    _ => self.publish(taken.drain(..)).await,
                },
                () = stop.cancelled(), if !self.queue.is_closed() => {
                    self.queue.close();
                    ends = Some(Instant::now() + DRAIN);
                }
            }
        }
        while self.queue.try_recv().is_ok() {
            self.metrics.events_lost.inc();
        }
        Ok(())
    }

    async fn publish(&self, happened: impl Iterator<Item = Happened>) {
        let mut sandboxes = BTreeMap::<_, Vec<_>>::new();
        for Happened { sandbox_id, event } in happened {
            sandboxes.entry(sandbox_id).or_default().push(change::encoded(event));
        }
        let publishing = sandboxes.into_iter().map(|(sandbox_id, events)| async move {
            let subject = Activity { sandbox_id, kind: Kind::Event }.to_string();
            let all = events.len();
            // One whose ack is missing may be stored, and is not sent again: twice would be worse than not.
            let stored = self.bus.enqueue_all(&subject, events).await;
            self.metrics.events.inc_by(stored as u64);
            self.metrics.events_lost.inc_by((all - stored) as u64);
        });
        join_all(publishing).await;
    }
}
