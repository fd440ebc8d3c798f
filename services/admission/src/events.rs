//! Platform events (D8): what a commit did to a sandbox, told to those who watch it.
//!
//! They are drawn from the rows before and after a commit and published by whoever committed, once, when it has: so each
//! state of a sandbox gives its events at most once, and none tells of what was not committed. They are news, not state:
//! nobody waits for them, and a replica that dies or a broker that is away loses them.

pub mod change;

use std::convert::Infallible;
use std::sync::Arc;

use roadstead_bus::Bus;
use roadstead_proto::activity::{Activity, Kind};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use change::Happened;

/// Events that wait for the broker. What does not fit is lost, and counted.
const QUEUE: usize = 4096;

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
    /// Publishes, in the order of the commits, until `stop`.
    ///
    /// # Errors
    /// Never.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Infallible> {
        let publishing = async {
            while let Some(Happened { sandbox_id, event }) = self.queue.recv().await {
                let subject = Activity { sandbox_id, kind: Kind::Event }.to_string();
                // One whose ack is missing may be stored, and is not sent again: twice would be worse than not.
                match self.bus.enqueue(subject, change::encoded(event), None).await {
                    Ok(()) => self.metrics.events.inc(),
                    Err(error) => {
                        tracing::debug!(%error, "an event may be lost");
                        self.metrics.events_lost.inc()
                    }
                };
            }
        };
        stop.run_until_cancelled(publishing).await;
        Ok(())
    }
}
