//! What the connection lives through, as counters that cannot be lost: the client's own events can be.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::{Event, ServerError, Statistics};
use tokio::sync::{Notify, watch};

use crate::metrics::Metrics;

/// How often the client's count of connections is looked at. Its events only make it sooner.
const LOOK_EVERY: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(crate) struct Health {
    role: &'static str,
    connects: watch::Sender<u64>,
    slow_consumers: watch::Sender<u64>,
    missing: watch::Sender<u64>,
    metrics: Metrics,
    look: Notify,
}

impl Health {
    pub(crate) fn new(role: &'static str) -> Self {
        Self {
            role,
            connects: watch::Sender::new(0),
            slow_consumers: watch::Sender::new(0),
            missing: watch::Sender::new(0),
            metrics: Metrics::default(),
            look: Notify::new(),
        }
    }

    pub(crate) fn connects(&self) -> watch::Receiver<u64> {
        self.connects.subscribe()
    }

    pub(crate) fn slow_consumers(&self) -> watch::Receiver<u64> {
        self.slow_consumers.subscribe()
    }

    pub(crate) fn missing(&self) -> watch::Receiver<u64> {
        self.missing.subscribe()
    }

    /// Somebody found a stream, bucket or consumer missing.
    pub(crate) fn report_missing(&self) {
        self.missing.send_modify(|count| *count += 1);
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Takes note of one event of the client.
    pub(crate) fn saw(&self, event: &Event) {
        match event {
            Event::Connected => {
                tracing::info!(role = self.role, "connected to the broker");
                self.look.notify_one();
            }
            Event::Disconnected => tracing::warn!(role = self.role, "disconnected from the broker"),
            Event::SlowConsumer(_) | Event::ServerError(ServerError::SlowConsumer(_)) => {
                tracing::warn!(role = self.role, "too slow a reader: messages from the broker were dropped");
                self.metrics.drops.inc();
                self.slow_consumers.send_modify(|count| *count += 1);
            }
            Event::ServerError(ServerError::Other(text)) if is_violation(text) => {
                // The call that was refused hears nothing: this line is the only sign.
                self.metrics.violations.inc();
                tracing::error!(role = self.role, %text, "the broker refused what this role may not do");
            }
            Event::ServerError(error) => tracing::error!(role = self.role, %error, "the broker reports an error"),
            Event::ClientError(error) => tracing::warn!(role = self.role, %error, "cannot reach the broker"),
            Event::LameDuckMode => tracing::warn!(role = self.role, "the broker is about to stop"),
            Event::Draining | Event::Closed => tracing::debug!(role = self.role, %event, "the connection ends"),
        }
    }

    /// Follows the client's count of connections until the task is stopped.
    pub(crate) async fn follow(self: Arc<Self>, statistics: Arc<Statistics>) {
        loop {
            let now = statistics.connects.load(Ordering::Relaxed);
            self.connects.send_if_modified(|seen| {
                self.metrics.connections.inc_by(now.saturating_sub(*seen));
                std::mem::replace(seen, now) != now
            });
            tokio::select! {
                () = self.look.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }
}

fn is_violation(text: &str) -> bool {
    text.to_ascii_lowercase().contains("permissions violation")
}
