//! What is counted of watches.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Metrics of the feeds and of the streams that follow them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    gaps: Family<Labels, Counter>,
    silences: Family<Labels, Counter>,
    open: Gauge,
    denied: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    bucket: &'static str,
}

/// Counts one open stream as long as it lives.
#[derive(Debug)]
pub(crate) struct Counted(Gauge);

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("feed_gaps", "Gaps in a feed, each healed by reading again", metrics.gaps.clone());
        registry.register(
            "feed_silences",
            "Times a feed fell silent and was subscribed anew",
            metrics.silences.clone(),
        );
        registry.register("watches_open", "Open WatchSandbox streams", metrics.open.clone());
        registry.register("watches_denied", "Streams ended because a right was taken away", metrics.denied.clone());
        metrics
    }

    pub(crate) fn gap(&self, bucket: &'static str) {
        self.gaps.get_or_create(&Labels { bucket }).inc();
    }

    pub(crate) fn silence(&self, bucket: &'static str) {
        self.silences.get_or_create(&Labels { bucket }).inc();
    }

    pub(crate) fn denied(&self) {
        self.denied.inc();
    }

    pub(crate) fn opened(&self) -> Counted {
        self.open.inc();
        Counted(self.open.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
