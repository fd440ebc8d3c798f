//! The role's metrics. No globals: two roles in one process have two of these.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use roadstead_proto::role::Role;
use tokio::runtime::{Handle, RuntimeMetrics};

/// Where a role registers its metrics and its admin port reads them. Cheap to clone.
#[derive(Clone)]
pub struct Metrics(Arc<Mutex<Registry>>);

impl Metrics {
    /// The metrics of one role; every name begins with `roadstead_`, every one has the label `role`.
    #[must_use]
    pub fn new(role: Role) -> Self {
        let labels = [("role".into(), role.name().into())];
        let mut registry = Registry::with_prefix_and_labels("roadstead", labels.into_iter());
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "What is running", build);
        if let Ok(runtime) = Handle::try_current() {
            registry.register_collector(Box::new(RuntimeTasks(runtime.metrics())));
        }
        Self(Arc::new(Mutex::new(registry)))
    }

    /// Registers metrics; what `register` returns, usually the struct that holds them, is returned.
    pub fn register<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        register(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// All of them in the OpenMetrics text format.
    ///
    /// # Errors
    /// If one cannot be written, which no sound metric does.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(text)
    }
}

/// Counts what runs. If it only rises, something is left behind.
#[derive(Debug)]
struct RuntimeTasks(RuntimeMetrics);

impl Collector for RuntimeTasks {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let alive = ConstGauge::new(i64::try_from(self.0.num_alive_tasks()).unwrap_or(i64::MAX));
        let help = "Tasks of the process that have not ended, those of all its connections and streams included";
        alive.encode(encoder.encode_descriptor("tasks", help, None, alive.metric_type())?)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Metrics(..)")
    }
}
