//! What is counted of lines and events.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// Metrics of the feed and of those who follow it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) lines: Counter,
    pub(crate) gaps: Counter,
    pub(crate) restarts: Counter,
    pub(crate) lags: Counter,
    pub(crate) pages: Counter,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let mut counter = |name: &str, help: &str, counter: &Counter| registry.register(name, help, counter.clone());
        counter("activity_lines", "Lines and events that the feed brought", &metrics.lines);
        counter("activity_gaps", "Gaps in the feed of lines, each healed by reading", &metrics.gaps);
        counter("activity_restarts", "Times the stored lines were lost or rolled back", &metrics.restarts);
        counter("activity_lags", "Times a stream took lines too slowly and went on to read", &metrics.lags);
        counter("activity_pages", "Pages of lines that were read", &metrics.pages);
        metrics
    }
}
