//! What is counted of lines and events.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

/// Metrics of the feed and of those who follow it.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    pub(crate) lines: Counter,
    pub(crate) gaps: Counter,
    pub(crate) restarts: Counter,
    pub(crate) lags: Counter,
    pub(crate) pages: Counter,
    /// The feed brought something.
    pub(crate) heard: Last,
    /// The feed was compared with what is stored.
    pub(crate) compared: Last,
}

/// When something happened last; told as its age, which is right whenever it is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Last {
    name: &'static str,
    help: &'static str,
    at: Arc<Mutex<Instant>>,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let counter = |registry: &mut Registry, name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let last = |registry: &mut Registry, name, help| {
            let last = Last { name, help, at: Arc::new(Mutex::new(Instant::now())) };
            registry.register_collector(Box::new(last.clone()));
            last
        };
        Self {
            lines: counter(registry, "activity_lines", "Lines and events that the feed brought"),
            gaps: counter(registry, "activity_gaps", "Gaps in the feed of lines, each healed by reading"),
            restarts: counter(registry, "activity_restarts", "Times the stored lines were lost or rolled back"),
            lags: counter(registry, "activity_lags", "Times a stream took lines too slowly and went on to read"),
            pages: counter(registry, "activity_pages", "Pages of lines that were read"),
            heard: last(registry, "activity_feed_age_seconds", "Time since the feed of lines brought anything"),
            compared: last(
                registry,
                "activity_feed_compared_age_seconds",
                "Time since the feed of lines was compared with what is stored",
            ),
        }
    }
}

impl Last {
    /// It happened now.
    pub(crate) fn now(&self) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

impl Collector for Last {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let age = self.at.lock().unwrap_or_else(PoisonError::into_inner).elapsed();
        let age = ConstGauge::new(age.as_secs_f64());
        age.encode(encoder.encode_descriptor(self.name, self.help, None, age.metric_type())?)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_age_grows_until_it_happens_again() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        tokio::time::advance(Duration::from_secs(7)).await;
        metrics.compared.now();
        tokio::time::advance(Duration::from_secs(2)).await;
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains("\nactivity_feed_age_seconds 9.0\n"), "{text}");
        assert!(text.contains("\nactivity_feed_compared_age_seconds 2.0\n"), "{text}");
    }
}
