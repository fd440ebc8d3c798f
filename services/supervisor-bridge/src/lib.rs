//! The supervisors' door: sessions, push, answers, reports (D5, D6). Serves only methods a sandbox may call.
//!
//! Pure cores: [`slots`] decides what a session sends, [`report`] what it owes admission, [`readiness`] what it
//! observes of providers, [`over`] when the projection says that it is over, [`logs::allowance`] how much a sandbox may
//! log, [`balance`] who hands over how many sessions to whom. Around them: [`presence`] is what bridges know of each
//! other, [`handover`] how sessions go, [`open`] begins a session, [`session`] has it, [`projection`] tells when its
//! sandbox stops, [`observe`] takes what it observes, [`outbox`] is what the transport takes from, [`reporter`] sends what
//! is owed, [`renew`] keeps this process alive in Postgres's eyes.

pub mod balance;
mod bootstrap;
mod bridge;
mod config;
pub mod end;
mod entrance;
mod entries;
pub mod entry;
mod handover;
pub mod logs;
mod metrics;
#[cfg(test)]
mod model;
mod observe;
mod open;
mod outbox;
pub mod over;
mod own;
pub mod peers;
mod presence;
mod projection;
mod read;
pub mod readiness;
mod renew;
pub mod report;
mod reporter;
mod route;
mod session;
mod sessions;
pub mod slots;

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use roadstead_bus::bucket::Bucket;
use roadstead_bus::door::CommandClient;
use roadstead_bus::service;
use roadstead_bus::topology::{self, Part};
use roadstead_bus::{Bus, ConnectSettings};
use roadstead_door::auth::{BootstrapTokens, Chain, SandboxTokens};
use roadstead_door::commands::Commands;
use roadstead_door::listener::{Listener, Settings};
use roadstead_door::{Front, Limits, others, share, tls};
use roadstead_proto::bucket::Bucket as Name;
use roadstead_proto::role::Role;
use roadstead_proto::stream::Stream;
use roadstead_service_kit::sandbox_token::TokenVerifier;
use roadstead_service_kit::service::Service;
use roadstead_service_kit::settings::BootstrapSettings;
use roadstead_service_kit::shutdown::Shutdown;
use roadstead_service_kit::tasks::Phase;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

pub use config::{Advertised, Config, Delivery, Endpoint, NotAnEndpoint, Rebalance, Times};

use bridge::Bridge;
use entrance::Entrance;
use sessions::Sessions;

const ROLE: Role = Role::SupervisorBridge;
/// Commands on their way, of all sessions together.
const COMMANDS: usize = 32_768;
/// Entries that are read again at the same time.
const READS: usize = 32;
/// Name of its micro service.
const NAME: &str = "supervisor-bridge";
/// Requests of other bridges and of operators that are worked on at a time.
const SLOTS: usize = 16;
/// How often it is measured how far supervisors are behind.
const MEASURE: Duration = Duration::from_secs(5);
const PARTS: [Part; 3] = [Part::Stream(Stream::Reports), Part::Bucket(Name::Snapshots), Part::Bucket(Name::Sandboxes)];

/// Runs the role until shutdown is requested.
///
/// # Errors
/// If it cannot start, or an essential task ends early.
pub async fn run(config: Config, shutdown: Shutdown) -> anyhow::Result<()> {
    let times = config.times();
    let Config {
        broker,
        keys,
        admin,
        listen,
        tls_cert,
        tls_key,
        max_sessions,
        opening_sessions,
        advertise,
        rebalance,
        config_delivery_mode,
        bootstrap,
        ..
    } = config;
    let keys = keys.load(ROLE)?;
    let id = Uuid::new_v4();
    let service = Service::start(ROLE, &admin).await?;
    let latches = ["broker", "topology", "renewal", "projection"].map(|name| service.readiness.latch(name));
    let tls = tls_cert.zip(tls_key).map(|(certificate, key)| tls::Files { certificate, key });
    let drain_deadline = service.drain_deadline();
    let settings = Settings { tls, drain: drain_deadline, ..Settings::at(listen) };
    let settings = Settings { connections: settings.connections.max(max_sessions as usize + 1024), ..settings };
    let bus = Bus::connect(ConnectSettings {
        url: broker.url()?.to_owned(),
        name: format!("roadstead {ROLE} {id}"),
        role: ROLE,
        nkey_seed: Some(keys.broker_seed().clone()),
        ca: broker.ca().map(Into::into),
    })
    .await?;
    service.metrics.register(|registry| bus.register(registry));
    let [connected, topology_there, renewed, projected] = latches;
    // Ends early only if the process is told to stop while the broker is away.
    let Some(client) = until(&shutdown, CommandClient::new(&bus, COMMANDS)).await else { return Ok(()) };
    let client = client?;
    connected.release();
    // Not before: a supervisor that cannot be served is better refused, and tries elsewhere.
    let listener = Listener::bind(settings).await?;
    tracing::info!(address = %listener.address(), "listening for supervisors");
    let drain = service.tasks.stop_token(Phase::Serving).clone();
    let bridge = Arc::new(Bridge {
        id,
        commands: Commands::new(client, keys.door_seal()?, share::DEFAULT),
        tokens: keys.token_verifier()?,
        keys: Arc::new(keys.snapshots()?),
        snapshots: Bucket::new(&bus, Name::Snapshots),
        sandboxes: Bucket::new(&bus, Name::Sandboxes),
        sessions: Arc::new(Sessions::default()),
        peers: Mutex::default(),
        advertise: advertise.flatten(),
        rebalance,
        delivery: config_delivery_mode,
        logs: logs::Logs::default(),
        metrics: Arc::new(service.metrics.register(metrics::Metrics::register)),
        times,
        places: Arc::new(Semaphore::new(max_sessions as usize)),
        opening: Arc::new(Semaphore::new(opening_sessions.into())),
        reads: Semaphore::new(READS),
        alive: watch::Sender::new(false),
        tasks: TaskTracker::new(),
        drain: drain.clone(),
        holders: observe::Holders::default(),
        bus,
    });

    let (reporter, other_services) = others::services()?;
    let entrance = Entrance { bridge: Arc::clone(&bridge), readiness: service.readiness.clone() };
    let front = Front::new(
        entrance,
        callers(keys.token_verifier()?, &bootstrap)?,
        Limits::default(),
        service.metrics.register(roadstead_door::metrics::Metrics::register),
        other_services,
        drain,
        env!("CARGO_PKG_VERSION"),
    );
    let tasks = &service.tasks;
    tasks.essential(Phase::Serving, "supervisors", |stop| {
        let bridge = Arc::clone(&bridge);
        async move {
            serve(listener, front, bridge, drain_deadline, stop).await;
            Ok::<_, Infallible>(())
        }
    });
    tasks.optional(Phase::Background, "topology check", |stop| {
        let bus = bridge.bus.clone();
        async move {
            if stop.run_until_cancelled(topology::wait(&bus, &PARTS)).await.is_some() {
                topology_there.release();
            }
            Ok::<_, Infallible>(())
        }
    });
    tasks.essential(Phase::Background, "renewals", |stop| {
        let agrees = service.readiness.condition("clock agrees with the database's");
        let bridge = Arc::clone(&bridge);
        async move {
            renew::run(bridge, renewed, agrees, stop).await;
            Ok::<_, Infallible>(())
        }
    });
    tasks.essential(Phase::Background, "requests of other bridges and of operators", |stop| {
        let (bus, endpoints) = (bridge.bus.clone(), vec![observe::endpoint(&bridge), handover::endpoint(&bridge)]);
        async move { service::serve(&bus, NAME, endpoints, SLOTS, stop).await }
    });
    tasks.essential(Phase::Background, "projection", |stop| projection::run(Arc::clone(&bridge), projected, stop));
    tasks.essential(Phase::Background, "presence", |stop| presence::run(Arc::clone(&bridge), stop));
    tasks.essential(Phase::Background, "measure", |stop| {
        let bridge = Arc::clone(&bridge);
        async move {
            measure(bridge, stop).await;
            Ok::<_, Infallible>(())
        }
    });
    tasks.optional(Phase::Background, "grpc health", |stop| {
        let readiness = service.readiness.clone();
        async move {
            if stop.run_until_cancelled(readiness.ready()).await.is_some() {
                reporter.set_service_status("", tonic_health::ServingStatus::Serving).await;
                reporter.set_service_status(others::API, tonic_health::ServingStatus::Serving).await;
            }
            Ok::<_, Infallible>(())
        }
    });
    Ok(service.run(&shutdown).await?)
}

/// Who is recognised: sandboxes, and workloads that a platform vouches for.
fn callers(tokens: TokenVerifier, bootstrap: &BootstrapSettings) -> anyhow::Result<Chain> {
    let chain = Chain::new().then(SandboxTokens::new(tokens));
    Ok(match bootstrap.verifier()? {
        Some(verifier) => chain.then(BootstrapTokens::new(verifier)),
        None => chain,
    })
}

/// Serves until told to stop; then no session begins, those that are open are asked to go elsewhere, and what they owe
/// is reported.
async fn serve(
    listener: Listener,
    front: Front<Entrance>,
    bridge: Arc<Bridge>,
    drain_deadline: Duration,
    stop: CancellationToken,
) {
    let closing = async {
        stop.cancelled().await;
        let deadline = Instant::now() + drain_deadline;
        handover::leave(&bridge, drain_deadline / 2);
        bridge.tasks.close();
        let settled = async {
            bridge.tasks.wait().await;
            bridge.commands.settled().await;
        };
        if tokio::time::timeout_at(deadline.into(), settled).await.is_err() {
            // Whoever judges this process gone ends them.
            tracing::warn!(sessions = bridge.tasks.len(), "the time to drain is over; some ends are not reported");
        }
    };
    tokio::join!(listener.serve(front, stop.clone()), closing);
}

async fn measure(bridge: Arc<Bridge>, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(MEASURE)).await.is_some() {
        let unanswered = bridge.sessions.unanswered(Instant::now());
        let metrics = &bridge.metrics;
        metrics.unanswered_sessions.set(i64::try_from(unanswered.sessions).unwrap_or(i64::MAX));
        metrics.unanswered_seconds.set(i64::try_from(unanswered.oldest.as_secs()).unwrap_or(i64::MAX));
    }
}

/// What the future comes to, unless shutdown is requested before.
async fn until<T>(shutdown: &Shutdown, future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        value = future => Some(value),
        () = shutdown.requested() => None,
    }
}
