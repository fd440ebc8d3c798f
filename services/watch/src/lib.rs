//! The role `watch`: the read side, and the projection that streams follow.

mod beat;
mod config;
mod page;
mod project;
mod projection;
mod read;
mod refusal;
mod selector;
mod serve;
mod sweep;

use std::convert::Infallible;
use std::num::NonZero;
use std::thread::available_parallelism;

use anyhow::Context as _;
use roadstead_bus::service::Slots;
use roadstead_bus::topology::{self, Part};
use roadstead_bus::{Bus, ConnectSettings, pull, service};
use roadstead_proto::bucket::Bucket;
use roadstead_proto::role::Role;
use roadstead_proto::stream::Consumer;
use roadstead_service_kit::service::Service;
use roadstead_service_kit::shutdown::Shutdown;
use roadstead_service_kit::tasks::Phase;
use roadstead_store::database::DEFAULT_QUOTA;
use roadstead_store::migrate::user;
use roadstead_store::{Database, DatabaseSettings};
use uuid::Uuid;

pub use config::Config;

use project::Projector;
use read::Reads;
use serve::Endpoints;
use sweep::Sweep;

const ROLE: Role = Role::Watch;

/// Lists that may wait for each that is worked on. More would wait longer than edges do for an answer.
const LISTS_WAITING: usize = 64;

/// Runs the role until shutdown is requested.
///
/// # Errors
/// If it cannot start, or an essential task ends early.
pub async fn run(config: Config, shutdown: Shutdown) -> anyhow::Result<()> {
    let Config { broker, database, keys, admin, projection_slots, read_slots, service_urls } = config;
    let keys = keys.load(ROLE)?;
    let process_id = Uuid::new_v4();
    let service = Service::start(ROLE, &admin).await?;
    let (broker_ready, database_ready) = (service.readiness.latch("broker"), service.readiness.latch("database"));

    let bus = Bus::connect(ConnectSettings {
        url: broker.url()?.to_owned(),
        name: format!("roadstead {ROLE} {process_id}"),
        role: ROLE,
        nkey_seed: Some(keys.broker_seed().clone()),
        ca: broker.ca().map(Into::into),
    })
    .await?;
    let connections = database.connections();
    let database = Database::connect(DatabaseSettings {
        url: database.url()?.to_owned(),
        user: user(ROLE).context("the role has no database user")?.to_owned(),
        password: keys.postgres_password()?.clone(),
        pool_size: connections,
        role: ROLE,
        process_id,
        quota: DEFAULT_QUOTA,
    })?;
    // Lists have slots of their own, and leave connections and turns of the processors to what streams and reads of one
    // object wait for.
    let list_slots = (connections / 2).min(available_parallelism().map_or(1, NonZero::get)).max(1);
    let list_slots = Slots { working: list_slots, waiting: list_slots * LISTS_WAITING };
    let reads =
        Reads { database: database.clone(), page_tokens: keys.page_tokens()?, service_urls: service_urls.into() };
    service.metrics.register(|registry| bus.register(registry));
    let serve_metrics = service.metrics.register(serve::Metrics::register);
    let projector = Projector::new(&bus, database.clone(), service.metrics.register(project::Metrics::register));

    let tasks = &service.tasks;
    tasks.optional(Phase::Background, "database check", |stop| {
        let database = database.clone();
        async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = database.answers() => database_ready.release(),
            }
            Ok::<_, Infallible>(())
        }
    });
    tasks.essential(Phase::Serving, "projection", |stop| {
        let (bus, projector) = (bus.clone(), projector.clone());
        async move {
            let parts =
                [Part::Consumer(Consumer::Projection), Part::Bucket(Bucket::Sandboxes), Part::Bucket(Bucket::Rights)];
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = topology::wait(&bus, &parts) => broker_ready.release(),
            }
            pull::run(&bus, Consumer::Projection, projection_slots.into(), stop, move |mark| {
                let projector = projector.clone();
                async move { projector.take(mark).await }
            })
            .await
        }
    });
    let Endpoints { single, lists } = serve::endpoints(&reads, &serve_metrics);
    tasks.essential(Phase::Serving, "reads", |stop| {
        let bus = bus.clone();
        async move { service::serve(&bus, "roadstead-read", single, usize::from(read_slots), stop).await }
    });
    tasks.essential(Phase::Serving, "lists", |stop| {
        let bus = bus.clone();
        async move { service::serve(&bus, "roadstead-list", lists, list_slots, stop).await }
    });
    tasks.essential(Phase::Background, "beats", |stop| {
        let bus = bus.clone();
        async move {
            beat::run(bus, process_id, stop).await;
            Ok::<_, Infallible>(())
        }
    });
    for (name, bucket) in [("sweep of sandboxes", Bucket::Sandboxes), ("sweep of rights", Bucket::Rights)] {
        let sweep = Sweep::new(&bus, bucket, database.clone(), projector.clone());
        tasks.essential(Phase::Background, name, |stop| async move {
            sweep.run(stop).await;
            Ok::<_, Infallible>(())
        });
    }
    Ok(service.run(&shutdown).await?)
}
