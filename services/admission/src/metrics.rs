//! What admission measures.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// A command and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Settled {
    pub method: &'static str,
    /// done, replayed, refused.
    pub outcome: &'static str,
    /// gRPC code.
    pub code: String,
}

/// Why something was put back or set aside.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Reason {
    pub reason: &'static str,
}

/// A durable consumer of the broker.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Of {
    pub consumer: &'static str,
}

/// A key that claims of protected methods are kept under.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Key {
    pub key: String,
    /// keeps, verifies.
    pub does: &'static str,
}

/// Admission's metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Commands answered. Mismatches and uncertain outcomes are `FailedPrecondition` here and counted apart below.
    pub settled: Family<Settled, Counter>,
    pub replays: Counter,
    pub mismatches: Counter,
    pub uncertain: Counter,
    /// Deliveries put back, by why.
    pub put_back: Family<Reason, Counter>,
    /// Deliveries that nobody could handle, by why.
    pub set_aside: Family<Reason, Counter>,
    /// From delivery to answer.
    pub seconds: Histogram,
    /// Commands that waited in the queue when the last one came.
    pub waiting: Family<Reason, Gauge>,
    /// Age of the oldest command that waits in the queue or is at work.
    pub queue_oldest_seconds: Family<Reason, Gauge<f64, AtomicU64>>,
    /// Messages that a consumer, of any role, was not given yet.
    pub consumer_pending: Family<Of, Gauge>,
    /// Messages that a consumer was given and has not decided.
    pub consumer_unacked: Family<Of, Gauge>,
    /// Claims of successes, kept for a day.
    pub claims_completed: Gauge,
    /// One for each key of fingerprints. Replicas that do not show the same cannot verify each other's claims.
    pub fingerprint_keys: Family<Key, Gauge>,
    /// Claims without an outcome. They stay until an operator settles them.
    pub claims_unresolved: Gauge,
    /// Commands without an outcome, with a claim or without one.
    pub commands_unresolved: Gauge,
    /// Deliveries set aside that are still kept.
    pub set_aside_kept: Gauge,
    /// Effects outside Postgres that were begun.
    pub effects_started: Counter,
    /// Those that ended, by how. The rest is at work, or was cut off and is among the unresolved.
    pub effects_ended: Family<Reason, Counter>,
    /// Effects that operators settled, by what they found.
    pub effects_settled: Family<Reason, Counter>,
    /// Transactions of results that came together, by how they ended: committed, given back to be settled one by one, or
    /// given back for a fault of ours.
    pub result_batches: Family<Reason, Counter>,
    /// Marks published, each once, by whoever deleted it.
    pub marks: Counter,
    /// Marks that were committed and not yet published.
    pub marks_waiting: Gauge,
    /// Age of the oldest of them.
    pub marks_oldest_seconds: Gauge<f64, AtomicU64>,
    /// Sessions whose bridge was judged gone.
    pub sessions_lost: Counter,
    /// Deadlines that this process saw to, by what they were for: provisioning, restart, expiration; or stray, if they
    /// meant nothing in the sandbox's phase.
    pub deadlines: Family<Reason, Counter>,
    /// Age of the oldest deadline that has passed and that nobody has seen to.
    pub deadline_overdue_seconds: Gauge<f64, AtomicU64>,
    /// Platform events published.
    pub events: Counter,
    /// Platform events that nobody may have heard of.
    pub events_lost: Counter,
    /// Rows that retention removed, by table.
    pub removed: Family<Reason, Counter>,
}

impl Metrics {
    /// Registers them all.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            settled: Family::default(),
            replays: Counter::default(),
            mismatches: Counter::default(),
            uncertain: Counter::default(),
            put_back: Family::default(),
            set_aside: Family::default(),
            seconds: Histogram::new(exponential_buckets(0.000_5, 2.0, 16)),
            waiting: Family::default(),
            queue_oldest_seconds: Family::default(),
            consumer_pending: Family::default(),
            consumer_unacked: Family::default(),
            claims_completed: Gauge::default(),
            fingerprint_keys: Family::default(),
            claims_unresolved: Gauge::default(),
            commands_unresolved: Gauge::default(),
            set_aside_kept: Gauge::default(),
            effects_started: Counter::default(),
            effects_ended: Family::default(),
            effects_settled: Family::default(),
            result_batches: Family::default(),
            marks: Counter::default(),
            marks_waiting: Gauge::default(),
            marks_oldest_seconds: Gauge::default(),
            sessions_lost: Counter::default(),
            deadlines: Family::default(),
            deadline_overdue_seconds: Gauge::default(),
            events: Counter::default(),
            events_lost: Counter::default(),
            removed: Family::default(),
        };
        let Self { settled, replays, mismatches, uncertain, put_back, set_aside, seconds, .. } = &metrics;
        registry.register("commands", "Commands answered, by method, outcome and gRPC code", settled.clone());
        registry.register("replays", "Successes shown again for a request id", replays.clone());
        registry.register("mismatches", "Request ids that were used with another request", mismatches.clone());
        registry.register("uncertain", "Duplicates told that the outcome is not known", uncertain.clone());
        registry.register("put_backs", "Deliveries put back to be tried again, by reason", put_back.clone());
        registry.register("set_aside", "Deliveries that nobody could handle, by reason", set_aside.clone());
        registry.register("command_seconds", "Time from delivery to answer", seconds.clone());
        let Self { waiting, queue_oldest_seconds, claims_completed, claims_unresolved, .. } = &metrics;
        registry.register("queue_waiting", "Commands that waited when the last one came, by queue", waiting.clone());
        registry.register(
            "queue_oldest_seconds",
            "Age of the oldest command that waits or is at work, by queue; page if it stays above the deadline of calls",
            queue_oldest_seconds.clone(),
        );
        registry.register(
            "consumer_pending",
            "Messages that wait for a consumer, of whatever role; they should not wait for long",
            metrics.consumer_pending.clone(),
        );
        registry.register(
            "consumer_unacked",
            "Messages that a consumer is at work on, or has put back for a while",
            metrics.consumer_unacked.clone(),
        );
        registry.register(
            "fingerprint_keys",
            "Keys that records of request ids are kept under and verified with; all replicas need the same",
            metrics.fingerprint_keys.clone(),
        );
        registry.register("claims_completed", "Request ids of successes that are kept", claims_completed.clone());
        registry.register(
            "claims_unresolved",
            "Request ids whose outcome is not known; each waits for `roadstead admission settle`",
            claims_unresolved.clone(),
        );
        let Self { commands_unresolved, effects_started, effects_ended, effects_settled, .. } = &metrics;
        registry.register(
            "commands_unresolved",
            "Commands at work outside the database or cut off there, with a request id or without",
            commands_unresolved.clone(),
        );
        registry.register("effects_started", "Effects outside the database begun", effects_started.clone());
        registry.register("effects_ended", "Effects outside the database ended, by how", effects_ended.clone());
        registry.register("effects_settled", "Effects that operators settled, by outcome", effects_settled.clone());
        registry.register(
            "result_batches",
            "Transactions of sessions' results that came together, by how they ended",
            metrics.result_batches.clone(),
        );
        registry.register("set_aside_kept", "Deliveries set aside that are kept", metrics.set_aside_kept.clone());
        registry.register("marks_published", "Marks published", metrics.marks.clone());
        registry.register("marks_waiting", "Marks committed and not published", metrics.marks_waiting.clone());
        registry.register("marks_oldest_seconds", "Age of the oldest of them", metrics.marks_oldest_seconds.clone());
        registry.register("sessions_lost", "Sessions whose bridge was judged gone", metrics.sessions_lost.clone());
        registry.register("deadlines", "Deadlines that came, by what they were for", metrics.deadlines.clone());
        registry.register(
            "deadline_overdue_seconds",
            "Age of the oldest deadline that has passed and was not seen to",
            metrics.deadline_overdue_seconds.clone(),
        );
        registry.register("events_published", "Platform events published", metrics.events.clone());
        registry.register("events_lost", "Platform events that may be lost", metrics.events_lost.clone());
        registry.register("removed", "Rows removed by retention, by table", metrics.removed.clone());
        metrics
    }

    /// Tells which keys this process has, that of new claims first.
    pub fn has_keys<'a>(&self, ids: impl Iterator<Item = &'a str>) {
        for (at, id) in ids.enumerate() {
            let does = if at == 0 { "keeps" } else { "verifies" };
            self.fingerprint_keys.get_or_create(&Key { key: id.to_owned(), does }).set(1);
        }
    }
}
