//! The effective configuration and provider environment of every sandbox, for push and for poll alike.
//!
//! Marks come in two lanes; each becomes a run of the one builder ([`build`]), which accepts a new entry into the bucket
//! `snapshots` or finds that the one that stands says the same. Changes of many sandboxes are expanded into marks first.
//! Writes nothing to Postgres but draws from one sequence.

mod ask;
mod build;
mod coming;
mod config;
mod entry;
mod expand;
mod inputs;
mod lane;
mod metrics;
#[cfg(test)]
mod model;
mod pause;
mod readiness;
mod refusal;
mod serve;
mod snapshot;
mod sweep;
mod turns;

use std::convert::Infallible;

use anyhow::Context as _;
use roadstead_bus::bucket::Bucket;
use roadstead_bus::topology::{self, Part};
use roadstead_bus::{Bus, ConnectSettings};
use roadstead_proto::bucket::Bucket as Name;
use roadstead_proto::role::Role;
use roadstead_proto::stream::{Consumer, Stream};
use roadstead_proto::subject::Lane;
use roadstead_service_kit::joined::{Limits, Questions, joined};
use roadstead_service_kit::service::Service;
use roadstead_service_kit::shutdown::Shutdown;
use roadstead_service_kit::tasks::Phase;
use roadstead_store::database::DEFAULT_QUOTA;
use roadstead_store::inputs::{Each, Named};
use roadstead_store::{Database, DatabaseSettings, StoreError, migrate};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use config::{Config, Lanes, Mode};

use ask::Tokens;
use build::{Builder, Drawn, Parts};
use metrics::Metrics;
use serve::Calls;
use snapshot::SnapshotKeys;

const ROLE: Role = Role::ConfigSnapshot;
/// What is found of one may be megabytes. One statement is at work in Postgres while what another found is read.
const JOINED: Limits = Limits { together: 32, under_way: 2 };

/// What must be there of the broker's topology before the role works.
const PARTS: [Part; 5] = [
    Part::Stream(Stream::Dirty),
    Part::Consumer(Consumer::DirtyOne),
    Part::Consumer(Consumer::DirtyFleet),
    Part::Consumer(Consumer::Expansion),
    Part::Bucket(Name::Snapshots),
];

/// Runs the role until `shutdown`.
///
/// # Errors
/// If the settings cannot be used, or a task without which the role cannot go on has ended.
pub async fn run(config: Config, shutdown: Shutdown) -> anyhow::Result<()> {
    let (deployment, lanes) = (config.deployment(), config.lanes());
    let Config { broker, database, keys, admin, config_read_slots, sweep_rate, .. } = config;
    let keys = keys.load(ROLE)?;
    let service = Service::start(ROLE, &admin).await?;
    let process_id = Uuid::new_v4();

    let bus = Bus::connect(ConnectSettings {
        url: broker.url()?.to_owned(),
        name: format!("{ROLE} {process_id}"),
        role: ROLE,
        nkey_seed: Some(keys.broker_seed().clone()),
        ca: broker.ca().map(ToOwned::to_owned),
    })
    .await?;
    let database = Database::connect(DatabaseSettings {
        url: database.url()?.to_owned(),
        user: migrate::user(ROLE).context("the role has no user in Postgres")?.to_owned(),
        password: keys.postgres_password()?.clone(),
        pool_size: database.connections(),
        role: ROLE,
        process_id,
        quota: DEFAULT_QUOTA,
    })?;
    service.metrics.register(|registry| bus.register(registry));
    let (inputs, by_id) = joined();
    let (inputs_by_name, by_name) = joined();
    questions(&service, &database, by_id, |database, ids: Vec<Uuid>| async move {
        let (sequence, found) = database.next_snapshot_inputs(&ids).await?;
        Ok(found.into_iter().map(|inputs| Ok(Drawn { sequence, inputs: inputs? })).collect())
    });
    questions(&service, &database, by_name, |database, asked: Vec<Named>| async move {
        database.snapshot_inputs_by_name(&asked).await
    });
    let builder = Builder::new(Parts {
        database,
        inputs,
        inputs_by_name,
        bucket: Bucket::new(&bus, Name::Snapshots),
        keys: SnapshotKeys { cipher: keys.snapshots()?, digests: keys.environment_digests()? },
        credentials: keys.credentials()?,
        deployment,
        metrics: service.metrics.register(Metrics::register),
    });
    let tokens = Tokens { passed: keys.snapshots()?, verifier: keys.token_verifier()? };
    let calls = Calls { builder: builder.clone(), tokens, cipher: keys.snapshots()? };

    let shares = Shares { lanes, reads: config_read_slots.into(), sweep_rate };
    start(&service, &bus, &builder, calls, shares);
    Ok(service.run(&shutdown).await?)
}

/// Asks Postgres what waits, with one statement for many.
fn questions<Q, A, F>(
    service: &Service,
    database: &Database,
    questions: Questions<Q, Result<A, StoreError>>,
    statement: impl Fn(Database, Vec<Q>) -> F + Send + Sync + 'static,
) where
    Q: Send + 'static,
    A: Send + 'static,
    F: Future<Output = Result<Each<A>, StoreError>> + Send + 'static,
{
    let database = database.clone();
    service.tasks.essential(Phase::Background, "questions to Postgres", |stop| async move {
        let all = |asked: Vec<Q>| {
            let (count, found) = (asked.len(), statement(database.clone(), asked));
            async move { found.await.unwrap_or_else(|error| error.repeated().take(count).map(Err).collect()) }
        };
        questions.run(JOINED, stop, all).await;
        Ok::<_, Infallible>(())
    });
}

/// How much of everything goes on at a time.
struct Shares {
    lanes: Lanes,
    reads: usize,
    /// Builds per second.
    sweep_rate: u32,
}

fn start(service: &Service, bus: &Bus, builder: &Builder, calls: Calls, shares: Shares) {
    let (broker_ready, database_ready) = (service.readiness.latch("broker"), service.readiness.latch("database"));
    let tasks = &service.tasks;
    tasks.optional(Phase::Background, "database check", |stop| {
        let database = builder.database().clone();
        async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = database.answers() => database_ready.release(),
            }
            Ok::<_, Infallible>(())
        }
    });
    tasks.optional(Phase::Background, "topology check", |stop| {
        let bus = bus.clone();
        async move {
            if found(&bus, &stop, &PARTS).await {
                broker_ready.release();
            }
            Ok::<_, Infallible>(())
        }
    });
    for (name, lane, slots) in
        [("builds of one", Lane::One, shares.lanes.one), ("builds of the fleet", Lane::Fleet, shares.lanes.fleet)]
    {
        let (bus, builder) = (bus.clone(), builder.clone());
        tasks.essential(Phase::Serving, name, |stop| lane::run(bus, builder, lane, slots, stop));
    }
    tasks.essential(Phase::Serving, "expansion", |stop| {
        expand::run(bus.clone(), builder.database().clone(), builder.metrics().clone(), stop)
    });
    tasks.essential(Phase::Serving, "reads", |stop| serve::run(bus.clone(), calls, shares.reads, stop));

    let losses = watch::Sender::new(0);
    let lost = losses.subscribe();
    tasks.essential(Phase::Background, "life of the bucket", |stop| {
        let (bus, builder) = (bus.clone(), builder.clone());
        async move {
            if found(&bus, &stop, &PARTS).await {
                sweep::look(bus, builder, losses, stop).await;
            }
            Ok::<_, Infallible>(())
        }
    });
    tasks.essential(Phase::Background, "sweep", |stop| {
        let (bus, builder) = (bus.clone(), builder.clone());
        async move {
            if found(&bus, &stop, &PARTS).await {
                sweep::run(builder, lost, shares.sweep_rate, stop).await;
            }
            Ok::<_, Infallible>(())
        }
    });
}

/// Waits for parts of the topology; false if the role is to stop first.
async fn found(bus: &Bus, stop: &CancellationToken, parts: &[Part]) -> bool {
    tokio::select! {
        () = stop.cancelled() => false,
        () = topology::wait(bus, parts) => true,
    }
}
