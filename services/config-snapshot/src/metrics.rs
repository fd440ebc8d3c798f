//! What the role counts.

use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use roadstead_proto::api::v1::ProviderReadinessState;
use roadstead_proto::subject::Lane;

/// How a build ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Outcome {
    /// A new entry was accepted.
    Written,
    /// The entry that stands says the same.
    Equal,
    /// The sandbox is gone, and so is its entry.
    Purged,
    /// It will be tried again.
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByState {
    state: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByLane {
    lane: LaneName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
enum LaneName {
    One,
    Fleet,
}

/// The metrics of the role. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    builds: Family<ByOutcome, Counter>,
    conflicts: Counter,
    build_seconds: Histogram,
    not_admitted: Counter,
    depth: Family<ByLane, Gauge>,
    expanded: Counter,
    sweeps: Counter,
    losses: Counter,
    judged: Family<ByState, Counter>,
}

impl Metrics {
    /// Registers all of them.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            builds: Family::default(),
            conflicts: Counter::default(),
            build_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 14)),
            not_admitted: Counter::default(),
            depth: Family::default(),
            expanded: Counter::default(),
            sweeps: Counter::default(),
            losses: Counter::default(),
            judged: Family::default(),
        };
        let Self { builds, conflicts, build_seconds, not_admitted, depth, expanded, sweeps, losses, judged } =
            metrics.clone();
        let under = registry.sub_registry_with_prefix("snapshot");
        under.register("builds", "Builds of snapshots by outcome", builds);
        under.register("conflicts", "Builds begun again because the entry had changed meanwhile", conflicts);
        under.register_with_unit("build_duration", "Time from the mark to the entry", Unit::Seconds, build_seconds);
        under.register("not_admitted", "Entries written that do not compose", not_admitted);
        under.register("lane_depth", "Marks that wait in a lane: at the broker, as it last told, and in hand", depth);
        under.register("expanded_marks", "Marks written for sandboxes that a change of many concerns", expanded);
        under.register("sweeps", "Passes of the sweeper over all snapshots", sweeps);
        under.register("losses", "Times that the broker was found to have lost or rolled back the bucket", losses);
        registry.register("provider_statuses", "Answers on the readiness of a provider, by state", judged);
        metrics
    }

    pub(crate) fn built(&self, outcome: Outcome, took: Duration) {
        self.builds.get_or_create(&ByOutcome { outcome }).inc();
        self.build_seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn conflict(&self) {
        self.conflicts.inc();
    }

    pub(crate) fn not_admitted(&self) {
        self.not_admitted.inc();
    }

    pub(crate) fn waiting(&self, lane: Lane, marks: u64) {
        let lane = match lane {
            Lane::One => LaneName::One,
            Lane::Fleet => LaneName::Fleet,
        };
        self.depth.get_or_create(&ByLane { lane }).set(i64::try_from(marks).unwrap_or(i64::MAX));
    }

    pub(crate) fn expanded(&self, marks: usize) {
        self.expanded.inc_by(marks as u64);
    }

    pub(crate) fn judged(&self, state: ProviderReadinessState) {
        self.judged.get_or_create(&ByState { state: state.as_str_name() }).inc();
    }

    pub(crate) fn swept(&self) {
        self.sweeps.inc();
    }

    pub(crate) fn lost(&self) {
        self.losses.inc();
    }
}
