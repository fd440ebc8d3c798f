//! What is counted of watches.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::feed::Heard;

/// Metrics of the feeds and of the streams that follow them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    gaps: Family<Labels, Counter>,
    silences: Family<Labels, Counter>,
    ages: Ages,
    open: Gauge,
    denied: Counter,
    unsure: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    bucket: &'static str,
}

type Age = Family<Labels, Gauge<f64, AtomicU64>>;

/// When each feed was heard last; told as ages, which are right whenever they are asked for.
#[derive(Clone, Debug, Default)]
struct Ages(Arc<Mutex<BTreeMap<&'static str, Last>>>);

#[derive(Clone, Copy, Debug)]
struct Last {
    beat: Instant,
    message: Instant,
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
        registry.register_collector(Box::new(metrics.ages.clone()));
        registry.register("watches_open", "Open WatchSandbox streams", metrics.open.clone());
        registry.register("watches_denied", "Streams ended because a right was taken away", metrics.denied.clone());
        registry.register(
            "watches_unsure",
            "Streams ended because nobody could tell their caller's rights, or those have to be asked for anew",
            metrics.unsure.clone(),
        );
        metrics
    }

    pub(crate) fn gap(&self, bucket: &'static str) {
        self.gaps.get_or_create(&Labels { bucket }).inc();
    }

    pub(crate) fn silence(&self, bucket: &'static str) {
        self.silences.get_or_create(&Labels { bucket }).inc();
    }

    /// A message of the feed came.
    pub(crate) fn heard(&self, bucket: &'static str, what: Heard, at: Instant) {
        let mut ages = self.ages.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = ages.entry(bucket).or_insert(Last { beat: at, message: at });
        last.message = at;
        if what == Heard::Beat {
            last.beat = at;
        }
    }

    /// A stream ends for its caller's rights: they were refused, or are not known.
    pub(crate) fn lost(&self, refused: bool) {
        if refused { &self.denied } else { &self.unsure }.inc();
    }

    pub(crate) fn opened(&self) -> Counted {
        self.open.inc();
        Counted(self.open.clone())
    }
}

impl Collector for Ages {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (beats, messages) = (Age::default(), Age::default());
        for (&bucket, last) in &last {
            beats.get_or_create(&Labels { bucket }).set(last.beat.elapsed().as_secs_f64());
            messages.get_or_create(&Labels { bucket }).set(last.message.elapsed().as_secs_f64());
        }
        for (name, help, age) in [
            ("feed_heartbeat_age_seconds", "Time since a watch replica was heard on a feed", beats),
            ("feed_age_seconds", "Time since anything was heard on a feed", messages),
        ] {
            age.encode(encoder.encode_descriptor(name, help, None, age.metric_type())?)?;
        }
        Ok(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
