//! What operators see of a connection to the broker.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// The durable consumer that something is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Of {
    pub(crate) consumer: &'static str,
}

/// Counters of one connection. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) connections: Counter,
    pub(crate) drops: Counter,
    pub(crate) violations: Counter,
    pub(crate) reads_repeated: Counter,
    pub(crate) reads_left: Counter,
    pub(crate) stalls: Family<Of, Counter>,
    pub(crate) not_understood: Family<Of, Counter>,
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let Self { connections, drops, violations, reads_repeated, reads_left, stalls, not_understood } = self.clone();
        registry.register("broker_connections", "Connections to the broker that were established", connections);
        registry.register("broker_drops", "Times that messages were dropped because a reader was too slow", drops);
        registry.register("broker_violations", "Operations that the broker does not permit to this role", violations);
        registry.register(
            "broker_reads_repeated",
            "Times that a question was put to all replicas because the one asked first said nothing for a second or more",
            reads_repeated,
        );
        registry.register(
            "broker_reads_left",
            "Questions put to all replicas that this one left to the others because no slot was idle",
            reads_left,
        );
        registry.register(
            "broker_stalls",
            "Times that a consumer brought nothing although messages and free slots waited, and was begun anew",
            stalls,
        );
        registry.register(
            "broker_not_understood",
            "Deliveries of a kind that this process does not know, put back for others or in the end set aside",
            not_understood,
        );
    }
}
