//! Measures what waits at the broker: how old the oldest command is, and how much each consumer has before it.

use std::sync::Arc;
use std::time::Duration;

use roadstead_bus::{Bus, queue};
use roadstead_proto::stream::Consumer;
use tokio_util::sync::CancellationToken;

use crate::envelope::Queue;
use crate::executor::queue_word;
use crate::metrics::{Metrics, Of, Reason};

const EVERY: Duration = Duration::from_secs(2);

/// Measures until `stop`.
pub(crate) async fn run(bus: Bus, metrics: Arc<Metrics>, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_some() {
        for queue in [Queue::Commands, Queue::Reports] {
            let stream = queue.consumer().config().stream;
            match queue::oldest(&bus, stream).await {
                Ok(age) => {
                    let label = Reason { reason: queue_word(queue) };
                    metrics.queue_oldest_seconds.get_or_create(&label).set(age.as_secs_f64());
                }
                Err(error) => tracing::debug!(%error, "the age of a queue is not known now"),
            }
        }
        for consumer in Consumer::ALL {
            let of = Of { consumer: consumer.config().name };
            match queue::backlog(&bus, consumer).await {
                Ok(backlog) => {
                    let count = |messages| i64::try_from(messages).unwrap_or(i64::MAX);
                    metrics.consumer_pending.get_or_create(&of).set(count(backlog.pending));
                    metrics.consumer_unacked.get_or_create(&of).set(count(backlog.unacked));
                }
                Err(error) => tracing::debug!(%error, consumer = of.consumer, "a backlog is not known now"),
            }
        }
    }
}
