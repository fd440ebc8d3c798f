//! What the bridge counts.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use roadstead_proto::api::v1::ConfigApplyOutcome;

use crate::end::End;

/// The metrics of one bridge.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    /// Sessions that were accepted and have not ended.
    pub(crate) held: Gauge,
    /// Sessions that are being opened.
    pub(crate) opening: Gauge,
    /// Sessions whose end admission has not heard of.
    pub(crate) reporting: Gauge,
    pub(crate) accepted: Counter,
    pub(crate) refused: Counter,
    ended: Family<Reason, Counter>,
    moves: Family<Reason, Counter>,
    updates: Family<Update, Counter>,
    update_wait: Histogram,
    results: Family<Outcome, Counter>,
    pub(crate) unknown_results: Counter,
    /// Messages and entries that this version cannot read.
    pub(crate) not_understood: Counter,
    reports: Family<Report, Counter>,
    observations: Family<Taken, Counter>,
    pub(crate) readiness_lapsed: Counter,
    pub(crate) rereads: Counter,
    pub(crate) missed: Counter,
    pub(crate) unanswered_sessions: Gauge,
    pub(crate) unanswered_seconds: Gauge,
    pub(crate) renewals: Counter,
    pub(crate) renewals_failed: Counter,
    /// Log lines that were stored.
    pub(crate) log_lines: Counter,
    log_lines_dropped: Family<Reason, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Update {
    kind: &'static str,
    again: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Taken {
    taken: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Report {
    report: &'static str,
    told: &'static str,
}

impl Metrics {
    /// Registers them.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            held: Gauge::default(),
            opening: Gauge::default(),
            reporting: Gauge::default(),
            accepted: Counter::default(),
            refused: Counter::default(),
            ended: Family::default(),
            moves: Family::default(),
            updates: Family::default(),
            update_wait: Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0]),
            results: Family::default(),
            unknown_results: Counter::default(),
            not_understood: Counter::default(),
            reports: Family::default(),
            observations: Family::default(),
            readiness_lapsed: Counter::default(),
            rereads: Counter::default(),
            missed: Counter::default(),
            unanswered_sessions: Gauge::default(),
            unanswered_seconds: Gauge::default(),
            renewals: Counter::default(),
            renewals_failed: Counter::default(),
            log_lines: Counter::default(),
            log_lines_dropped: Family::default(),
        };
        let mut gauge = |name: &str, help: &str, gauge: &Gauge| registry.register(name, help, gauge.clone());
        gauge("sessions_held", "Sessions that are open", &metrics.held);
        gauge("sessions_opening", "Sessions that are being opened", &metrics.opening);
        gauge("sessions_reporting", "Ended sessions whose end is still to be reported", &metrics.reporting);
        gauge("sessions_unanswered", "Sessions with an update that waits for its answer", &metrics.unanswered_sessions);
        gauge("session_unanswered_seconds", "Age of the oldest unanswered update", &metrics.unanswered_seconds);
        let mut counter = |name: &str, help: &str, counter: &Counter| registry.register(name, help, counter.clone());
        counter("sessions_accepted", "Sessions that were accepted", &metrics.accepted);
        counter("sessions_refused", "Sessions that were not accepted", &metrics.refused);
        counter("session_results_unknown", "Answers to updates that are not known", &metrics.unknown_results);
        counter(
            "session_not_understood",
            "Messages of supervisors and entries of the broker that this version does not know and left out",
            &metrics.not_understood,
        );
        counter("session_rereads", "Entries that were read again", &metrics.rereads);
        counter("session_missed_entries", "Entries found by reading again that had not been heard of", &metrics.missed);
        counter("readiness_lapsed", "Observations that were not repeated in time", &metrics.readiness_lapsed);
        counter("renewals", "Renewals of this process that were answered", &metrics.renewals);
        counter("renewals_failed", "Renewals of this process without an answer", &metrics.renewals_failed);
        counter("log_lines", "Log lines of sandboxes that were stored", &metrics.log_lines);
        registry.register(
            "log_lines_dropped",
            "Log lines of sandboxes that were dropped, by reason",
            metrics.log_lines_dropped.clone(),
        );
        registry.register("sessions_ended", "Sessions that ended, by reason", metrics.ended.clone());
        registry.register("session_moves", "Sessions handed over to other bridges, by reason", metrics.moves.clone());
        registry.register("session_updates", "Updates that were sent", metrics.updates.clone());
        registry.register(
            "session_update_wait_seconds",
            "Time from the arrival of content at this process to its sending",
            metrics.update_wait.clone(),
        );
        registry.register("session_results", "Answers to updates, by outcome", metrics.results.clone());
        registry.register(
            "readiness_observations",
            "Observations of the readiness of providers, by whether they were taken",
            metrics.observations.clone(),
        );
        registry.register("session_reports", "Reports to admission, by what became of them", metrics.reports.clone());
        metrics
    }

    pub(crate) fn sent(&self, kind: &'static str, again: bool, waited: Duration) {
        let again = if again { "true" } else { "false" };
        self.updates.get_or_create(&Update { kind, again }).inc();
        self.update_wait.observe(waited.as_secs_f64());
    }

    pub(crate) fn answered(&self, outcome: ConfigApplyOutcome) {
        self.results.get_or_create(&Outcome { outcome: outcome.as_str_name() }).inc();
    }

    pub(crate) fn reported(&self, report: &'static str, told: &'static str) {
        self.reports.get_or_create(&Report { report, told }).inc();
    }

    pub(crate) fn observed(&self, taken: bool) {
        let taken = if taken { "true" } else { "false" };
        self.observations.get_or_create(&Taken { taken }).inc();
    }

    pub(crate) fn dropped(&self, reason: &'static str, lines: u64) {
        if lines > 0 {
            self.log_lines_dropped.get_or_create(&Reason { reason }).inc_by(lines);
        }
    }

    pub(crate) fn moved(&self, end: End) {
        self.moves.get_or_create(&Reason { reason: end.word() }).inc();
    }

    pub(crate) fn ended(&self, end: End) {
        self.ended.get_or_create(&Reason { reason: end.word() }).inc();
    }
}
