//! One connection to the broker, as one role.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, ConnectOptions};
use futures_util::stream::SelectAll;
use prometheus_client::registry::Registry;
use roadstead_proto::inbox::Inbox;
use roadstead_proto::role::Role;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::BROKER_TIMEOUT;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::replies::Replies;

/// A peer that went silent without a word is noticed after three of these.
const PING_EVERY: Duration = Duration::from_secs(5);
const LONGEST_RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// Where to connect and as whom.
#[derive(Debug, Clone)]
pub struct ConnectSettings {
    /// One address or several with commas between them: `nats://host:4222`, or `tls://host:4222`.
    pub url: String,
    /// Name of the process, shown to operators by the broker.
    pub name: String,
    /// The role decides the prefix of the inboxes, and with the seed what is permitted.
    pub role: Role,
    /// Seed of the role's nkey. Without it the broker must admit anybody.
    pub nkey_seed: Option<SecretString>,
    /// Certificate authority of the broker, as a PEM file. Naming one demands TLS.
    pub ca: Option<PathBuf>,
}

/// Why no connection could even be tried.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address, the seed or the certificate cannot be used.
    #[error("cannot use the settings of the broker connection")]
    Settings(#[source] async_nats::ConnectError),
    /// The inbox for replies was refused by the client.
    #[error("cannot open the inbox for replies")]
    Inbox(#[source] async_nats::SubscribeError),
}

/// A connection to the broker. Clones share it; it closes when the last one is gone.
#[derive(Clone)]
pub struct Bus {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    inbox: Inbox,
    health: Arc<Health>,
    replies: Arc<Replies>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

impl std::fmt::Debug for Bus {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Bus").field("inbox", &self.inner.inbox).finish_non_exhaustive()
    }
}

impl Bus {
    /// Opens a connection. Returns at once; the first connection is tried in the background until it stands, as every
    /// later one is. Use [`Bus::connected`] to wait for it.
    ///
    /// # Errors
    ///
    /// If the settings cannot be used at all. An unreachable broker is no error.
    pub async fn connect(settings: ConnectSettings) -> Result<Self, ConnectError> {
        let ConnectSettings { url, name, role, nkey_seed, ca } = settings;
        let inbox = Inbox { role, process_id: Uuid::new_v4() };
        let health = Arc::new(Health::new(role.name()));
        let events = Arc::clone(&health);
        let mut options = ConnectOptions::new()
            .name(name)
            .custom_inbox_prefix(format!("{}.client", inbox.prefix()))
            .ping_interval(PING_EVERY)
            .request_timeout(Some(BROKER_TIMEOUT))
            .reconnect_delay_callback(reconnect_delay)
            .retry_on_initial_connect()
            .event_callback(move |event| {
                events.saw(&event);
                std::future::ready(())
            });
        if let Some(seed) = nkey_seed {
            options = options.nkey(seed.expose_secret().to_owned());
        }
        if let Some(ca) = ca {
            options = options.require_tls(true).add_root_certificates(ca);
        }
        let addresses: Vec<&str> = url.split(',').map(str::trim).collect();
        let client = options.connect(addresses).await.map_err(ConnectError::Settings)?;
        let replies = Arc::new(Replies::new(inbox));
        let mut inbound = SelectAll::new();
        for subject in replies.subjects() {
            inbound.push(client.subscribe(subject).await.map_err(ConnectError::Inbox)?);
        }
        let tasks = [
            AbortOnDropHandle::new(tokio::spawn(Arc::clone(&health).follow(client.statistics()))),
            AbortOnDropHandle::new(tokio::spawn(Arc::clone(&replies).hand_out(inbound))),
        ];
        Ok(Self { inner: Arc::new(Inner { client, inbox, health, replies, _tasks: tasks }) })
    }

    /// The role this connection was opened as.
    #[must_use]
    pub fn role(&self) -> Role {
        self.inner.inbox.role
    }

    /// The inboxes of this connection.
    #[must_use]
    pub fn inbox(&self) -> Inbox {
        self.inner.inbox
    }

    /// How often a connection was established, the first one included.
    #[must_use]
    pub fn connects(&self) -> u64 {
        self.client().statistics().connects.load(Ordering::Relaxed)
    }

    /// Changes after each connection that was established: messages may have been missed before it.
    #[must_use]
    pub fn reconnects(&self) -> watch::Receiver<u64> {
        self.inner.health.connects()
    }

    /// Changes when the client dropped messages because a reader was too slow.
    #[must_use]
    pub fn slow_consumers(&self) -> watch::Receiver<u64> {
        self.inner.health.slow_consumers()
    }

    /// Changes when a stream, bucket or consumer was found missing. Admission listens, and ensures the topology again.
    #[must_use]
    pub fn missing(&self) -> watch::Receiver<u64> {
        self.inner.health.missing()
    }

    /// How many operations the broker has refused by its permissions. Anything but zero is a fault.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.metrics().violations.get()
    }

    /// Registers what operators see of this connection, as `broker_…`.
    pub fn register(&self, registry: &mut Registry) {
        self.metrics().register(registry);
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        self.inner.health.metrics()
    }

    /// Whether the connection stands, as far as this side knows.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.client().connection_state() == State::Connected
    }

    /// Waits until the connection stands.
    pub async fn connected(&self) {
        let mut connects = self.reconnects();
        while !self.is_connected() {
            // The sender lives as long as `self`. The pause covers a state that lags behind the count.
            let _changed = tokio::time::timeout(Duration::from_millis(50), connects.changed()).await;
        }
    }

    /// Sends what is queued, ends all subscriptions and closes the connection, for every clone.
    pub async fn close(&self) {
        if let Err(error) = self.client().drain().await {
            tracing::debug!(%error, "the connection was closed already");
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.inner.client
    }

    pub(crate) fn replies(&self) -> &Arc<Replies> {
        &self.inner.replies
    }

    pub(crate) fn report_missing(&self) {
        self.inner.health.report_missing();
    }
}

/// At once, then 20 ms doubling to a second.
fn reconnect_delay(attempt: usize) -> Duration {
    match u32::try_from(attempt.saturating_sub(1)) {
        Ok(0) => Duration::ZERO,
        Ok(n) => Duration::from_millis(10).saturating_mul(2_u32.saturating_pow(n)).min(LONGEST_RECONNECT_DELAY),
        Err(_) => LONGEST_RECONNECT_DELAY,
    }
}
