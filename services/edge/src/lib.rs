//! The role `edge`: the clients' door.

mod activity;
mod config;
mod door;
mod local;
mod read;
mod route;
mod shape;
mod tokens;
mod watch;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use roadstead_bus::door::CommandClient;
use roadstead_bus::{Bus, ConnectError, ConnectSettings, SubscribeError, topology};
use roadstead_door::auth::{Chain, LocalDev, SandboxTokens, StaticTokensError, TokenFile};
use roadstead_door::commands::Commands;
use roadstead_door::listener::{self, Listener};
use roadstead_door::metrics::Metrics;
use roadstead_door::{Front, Limits, clock, others, tls};
use roadstead_proto::method::{Method, RuleError};
use roadstead_proto::role::Role;
use roadstead_proto::sealing::DoorSeal;
use roadstead_proto::stream::Stream;
use roadstead_service_kit::admin::BindError;
use roadstead_service_kit::key_file::KeyFileError;
use roadstead_service_kit::readiness::{Latch, Readiness};
use roadstead_service_kit::role_keys::{KeyError, RoleKeys};
use roadstead_service_kit::service::Service;
use roadstead_service_kit::settings::AddressError;
use roadstead_service_kit::shutdown::Shutdown;
use roadstead_service_kit::tasks::{Phase, Stopped};
use tokio_util::sync::CancellationToken;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use activity::Activity;
pub use config::{Config, Where};
use door::EdgeDoor;
use watch::{Entries, Hub, Rights, Sandboxes, Watches, feed};

/// Commands of all callers together that this process keeps in flight.
const IN_FLIGHT: usize = 4096;
/// How often readiness is repeated to `grpc.health.v1`.
const REPORT_EVERY: Duration = Duration::from_millis(500);

/// Why the edge did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The rules of the methods that were compiled in are unsound.
    #[error(transparent)]
    Rules(#[from] RuleError),
    /// The key file cannot be used.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// The key file lacks a key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The token file cannot be used.
    #[error("--tokens: {0}")]
    Tokens(#[from] StaticTokensError),
    /// The admin port cannot be opened.
    #[error(transparent)]
    Admin(#[from] BindError),
    /// The public port cannot be opened.
    #[error(transparent)]
    Listener(#[from] listener::Error),
    /// The broker's address must not be used.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The broker's settings cannot be used.
    #[error(transparent)]
    Broker(#[from] ConnectError),
    /// The compiled-in descriptors cannot be served.
    #[error("cannot serve reflection: {0}")]
    Reflection(String),
    /// The role ended otherwise than by being asked to.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Serves until shutdown is requested.
///
/// # Errors
///
/// See [`Error`].
pub async fn run(config: Config, shutdown: Shutdown) -> Result<(), Error> {
    Edge::start(config).await?.run(&shutdown).await
}

/// An edge that serves.
#[derive(Debug)]
pub struct Edge {
    service: Service,
    address: SocketAddr,
}

impl Edge {
    /// Opens the ports and starts serving. What the edge needs of others is waited for in the background.
    ///
    /// # Errors
    ///
    /// See [`Error`]; a broker that is away is none.
    pub async fn start(config: Config) -> Result<Self, Error> {
        let unauthenticated = config.allows_unauthenticated();
        let Config {
            broker,
            keys,
            admin,
            listen,
            tls_cert,
            tls_key,
            tokens,
            allow_unauthenticated_users: _,
            bridge_address,
            caller_share,
            watches,
            connections,
        } = config;
        Method::check_rules()?;
        let keys = keys.load(Role::Edge)?;
        let tokens = tokens.map(TokenFile::load).transpose()?;
        let chain = Arc::new(chain(&keys, tokens.as_ref(), unauthenticated)?);
        let seal = keys.door_seal()?;
        let (reporter, others) = others::services().map_err(|error| Error::Reflection(error.to_string()))?;

        let service = Service::start(Role::Edge, &admin).await?;
        let listener = Listener::bind(listener::Settings {
            tls: tls_cert.zip(tls_key).map(|(certificate, key)| tls::Files { certificate, key }),
            connections: connections as usize,
            drain: service.drain_deadline(),
            ..listener::Settings::at(listen)
        })
        .await?;
        let address = listener.address();
        let bus = Bus::connect(ConnectSettings {
            url: broker.url()?.to_owned(),
            name: format!("roadstead edge {address}"),
            role: Role::Edge,
            nkey_seed: Some(keys.broker_seed().clone()),
            ca: broker.ca().map(ToOwned::to_owned),
        })
        .await?;

        service.metrics.register(|registry| bus.register(registry));
        let (hub, entries, rights) = (Hub::default(), Entries::default(), Rights::default());
        let watched = service.metrics.register(watch::Metrics::register);
        let activity = Activity::new(&bus, service.metrics.register(activity::Metrics::register));
        let (compared, clock) = tokio::sync::watch::channel(clock::Compared::NoAnswer);
        let commands = Arc::new(OnceLock::new());
        let drain = service.tasks.stop_token(Phase::Serving).clone();
        let limits = Limits::default();
        let door = EdgeDoor {
            bus: bus.clone(),
            commands: Arc::clone(&commands),
            watches: Watches::new(
                bus.clone(),
                hub.clone(),
                entries.clone(),
                rights.clone(),
                activity.clone(),
                watched.clone(),
                watches as usize,
            ),
            activity: activity.clone(),
            readiness: service.readiness.clone(),
            clock,
            drain: drain.clone(),
            limit: limits.message,
            bridge_address,
        };
        let metrics = service.metrics.register(Metrics::register);
        let front = Front::new(door, Arc::clone(&chain), limits, metrics, others, drain, local::VERSION);

        let (tasks, readiness) = (&service.tasks, &service.readiness);
        if let Some(tokens) = tokens {
            let metrics = service.metrics.register(tokens::Metrics::register);
            tasks.essential(Phase::Background, "tokens", |stop| done(tokens::follow(tokens, chain, metrics, stop)));
        }
        let latch = readiness.latch("commands");
        tasks.optional(Phase::Background, "commands", |stop| {
            open_commands(bus.clone(), seal, usize::from(caller_share), commands, latch, stop)
        });
        let sandboxes = Sandboxes { hub: hub.clone(), entries: entries.clone() };
        let latch = readiness.latch("feed of sandboxes");
        tasks.essential(Phase::Background, "feed of sandboxes", |stop| {
            feed::follow(bus.clone(), sandboxes, watched.clone(), latch, stop)
        });
        let latch = readiness.latch("feed of rights");
        tasks.essential(Phase::Background, "feed of rights", |stop| {
            feed::follow(bus.clone(), rights, watched, latch, stop)
        });
        tasks.essential(Phase::Background, "feed of activity", |stop| activity::feed::follow(activity, stop));
        tasks.essential(Phase::Background, "entries", |stop| done(entries.run(bus.clone(), hub, stop)));
        tasks.essential(Phase::Background, "clock", |stop| done(clock::run(bus, readiness.clone(), compared, stop)));
        tasks.essential(Phase::Background, "health", |stop| done(report(readiness.clone(), reporter, stop)));
        tasks.essential(Phase::Serving, "listener", |stop| done(listener.serve(front, stop)));
        tracing::info!(%address, unauthenticated, "listening");
        Ok(Self { service, address })
    }

    /// Where the public API is.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether the edge waits for nothing.
    #[must_use]
    pub const fn readiness(&self) -> &Readiness {
        &self.service.readiness
    }

    /// Serves until shutdown is requested.
    ///
    /// # Errors
    ///
    /// If it was not an orderly end.
    pub async fn run(self, shutdown: &Shutdown) -> Result<(), Error> {
        Ok(self.service.run(shutdown).await?)
    }
}

/// Who may come in.
fn chain(keys: &RoleKeys, tokens: Option<&TokenFile>, unauthenticated: bool) -> Result<Chain, KeyError> {
    let mut chain = Chain::new().then(SandboxTokens::new(keys.token_verifier()?));
    if let Some(tokens) = tokens {
        chain = chain.then(tokens.tokens());
    }
    if unauthenticated {
        tracing::warn!("callers without a credential are taken for the local developer");
        chain = chain.then(LocalDev);
    } else if tokens.is_none() {
        tracing::warn!(
            "no user can be recognised: there is no token file, and callers without a credential are refused"
        );
    }
    Ok(chain)
}

/// Opens the way of commands once broker and queue are there.
async fn open_commands(
    bus: Bus,
    seal: DoorSeal,
    share: usize,
    commands: Arc<OnceLock<Commands>>,
    latch: Latch,
    stop: CancellationToken,
) -> Result<(), SubscribeError> {
    let opening = async {
        topology::wait(&bus, &[topology::Part::Stream(Stream::Commands)]).await;
        let client = CommandClient::new(&bus, IN_FLIGHT).await?;
        if commands.set(Commands::new(client, seal, share)).is_ok() {
            latch.release();
        }
        Ok(())
    };
    stop.run_until_cancelled(opening).await.unwrap_or(Ok(()))
}

/// Tells `grpc.health.v1` what readiness says.
async fn report(readiness: Readiness, reporter: HealthReporter, stop: CancellationToken) {
    loop {
        let status = if readiness.is_ready() { ServingStatus::Serving } else { ServingStatus::NotServing };
        for service in ["", others::API] {
            reporter.set_service_status(service, status).await;
        }
        if stop.run_until_cancelled(tokio::time::sleep(REPORT_EVERY)).await.is_none() {
            return;
        }
    }
}

/// A task that cannot fail.
async fn done(task: impl Future<Output = ()>) -> Result<(), Infallible> {
    task.await;
    Ok(())
}
