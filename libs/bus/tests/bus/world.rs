//! A broker of the test's own, and what stands on it.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use roadstead_bus::permissions::{Auth, limits_and_users};
use roadstead_bus::{Bus, ConnectSettings, topology};
use roadstead_proto::role::Role;
use roadstead_proto::stream::Stream;
use roadstead_testkit::{Broker, eventually};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Long enough for any condition on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) struct World {
    pub(crate) broker: Broker,
    /// Admission's connection, which made the topology.
    pub(crate) admission: Bus,
}

impl World {
    /// A broker that admits anybody, with the topology made.
    pub(crate) async fn new() -> Self {
        let broker = Broker::start(&limits_and_users(&Auth::Open)).await;
        let admission = bus(&broker, Role::Admission).await;
        topology::ensure(&admission, 1).await.unwrap();
        Self { broker, admission }
    }

    pub(crate) async fn bus(&self, role: Role) -> Bus {
        bus(&self.broker, role).await
    }

    /// The broker's store without the bus.
    pub(crate) async fn store(&self) -> jetstream::Context {
        jetstream::new(async_nats::connect(self.broker.url()).await.unwrap())
    }

    /// Changes a stream's settings.
    pub(crate) async fn adjust(&self, stream: Stream, change: impl FnOnce(&mut jetstream::stream::Config)) {
        let store = self.store().await;
        let mut config = store.get_stream(stream.config().name).await.unwrap().cached_info().config.clone();
        change(&mut config);
        store.update_stream(config).await.unwrap();
    }

    /// How many messages the stream holds.
    pub(crate) async fn held(&self, stream: Stream) -> u64 {
        let store = self.store().await;
        store.get_stream(stream.config().name).await.unwrap().cached_info().state.messages
    }

    /// Waits until the stream holds so many messages.
    pub(crate) async fn holds(&self, stream: Stream, messages: u64) {
        let store = self.store().await;
        eventually(LONG, &format!("{stream:?} holds {messages}"), || async {
            let held = store.get_stream(stream.config().name).await.map_err(|e| e.to_string())?;
            let held = held.cached_info().state.messages;
            if held == messages { Ok(()) } else { Err(format!("it holds {held}")) }
        })
        .await;
    }
}

pub(crate) async fn bus(broker: &Broker, role: Role) -> Bus {
    connect(broker.url(), role).await
}

pub(crate) async fn connect(url: String, role: Role) -> Bus {
    let settings = ConnectSettings { url, name: role.name().into(), role, nkey_seed: None, ca: None };
    let bus = Bus::connect(settings).await.unwrap();
    tokio::time::timeout(LONG, bus.connected()).await.unwrap();
    bus
}

/// A task that is told to stop when the test is done with it.
pub(crate) struct Running<T> {
    pub(crate) stop: CancellationToken,
    task: JoinHandle<T>,
}

impl<T: Send + 'static> Running<T> {
    pub(crate) fn start<F: Future<Output = T> + Send + 'static>(task: impl FnOnce(CancellationToken) -> F) -> Self {
        let stop = CancellationToken::new();
        Self { task: tokio::spawn(task(stop.clone())), stop }
    }

    pub(crate) async fn stop(self) -> T {
        self.stop.cancel();
        tokio::time::timeout(LONG, self.task).await.unwrap().unwrap()
    }

    /// Ends it without a word.
    pub(crate) async fn abort(self) {
        self.task.abort();
        assert!(self.task.await.is_err());
    }
}

/// Keeps the topology until stopped.
pub(crate) fn keep_topology(bus: &Bus) -> Running<()> {
    let bus = bus.clone();
    Running::start(move |stop| async move { topology::keep(&bus, 1, stop).await })
}

/// What tasks of a test tell it.
pub(crate) type Log<T> = Arc<std::sync::Mutex<Vec<T>>>;

pub(crate) fn log<T>() -> Log<T> {
    Arc::default()
}

/// Waits until the log has that many lines, and returns them.
pub(crate) async fn lines<T: Clone>(log: &Log<T>, count: usize) -> Vec<T> {
    eventually(LONG, &format!("{count} lines"), || {
        let lines = log.lock().unwrap().clone();
        async move { if lines.len() >= count { Ok(lines) } else { Err(format!("{} so far", lines.len())) } }
    })
    .await
}

/// A metric of a connection; zero if it is not there.
pub(crate) fn metric(bus: &Bus, series: &str) -> f64 {
    let (mut registry, mut text) = (Registry::default(), String::new());
    bus.register(&mut registry);
    encode(&mut text, &registry).unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(series));
    value.map_or(0.0, |value| value.trim().parse().unwrap())
}
