//! The role `admission`: every write of the control plane, and the broker's topology.
//!
//! The core is plain: [`ledger`] (at most once), [`operation`] (what each mutation does), [`phase`] and [`restart`] (what may
//! follow what), [`authorize`](mod@authorize) and [`validate`], brought together by [`attempt`]. Around it stand the shells:
//! `executor` (queues), `relay` (marks), [`events`], `renew`, `sweep` with its [`timer`], and `admin`.

mod admin;
mod again;
pub mod answer;
pub mod attempt;
pub mod authorize;
mod backlog;
pub mod caller;
mod config;
pub mod context;
pub mod effect;
pub mod envelope;
pub mod events;
mod executor;
pub mod ledger;
pub mod limit;
pub mod metrics;
pub mod name;
pub mod operation;
pub mod phase;
pub mod refusal;
pub mod relay;
mod renew;
pub mod restart;
pub mod served;
mod sweep;
pub mod timer;
pub mod validate;
pub mod vault;

#[cfg(test)]
mod sample;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use roadstead_bus::{Bus, ConnectSettings, pull, service, topology};
use roadstead_proto::method::Method;
use roadstead_proto::role::Role;
use roadstead_proto::stream::Stream;
use roadstead_service_kit::bootstrap_token::BootstrapVerifier;
use roadstead_service_kit::joined::joined;
use roadstead_service_kit::role_keys::RoleKeys;
use roadstead_service_kit::service::Service;
use roadstead_service_kit::shutdown::Shutdown;
use roadstead_service_kit::tasks::Phase;
use roadstead_store::migrate::user;
use roadstead_store::{Database, DatabaseSettings};
use tokio::sync::Semaphore;
use uuid::Uuid;

pub use config::Config;
pub use served::Served;

use again::Again;
use answer::Minter;
use attempt::Core;
use context::RandomIds;
use envelope::{Opener, Queue};
use events::Events;
use executor::{Executor, Parts, together};
use ledger::Fingerprints;
use limit::Limit;
use metrics::Metrics;
use relay::Relay;
use sweep::Sweeps;
use timer::Timer;
use vault::CredentialVault;

const ROLE: Role = Role::Admission;
/// Requests for renewals and for the clock that are worked on at the same time.
const RENEWALS: usize = 8;
const OPERATORS: usize = 4;
/// Reports that are in hand, so that results of sessions come together. The slots are those of all others.
const REPORTS_IN_HAND: u16 = 64;
/// Tokens that one sandbox may have within a window.
const REFRESHES: (u32, Duration) = (10, Duration::from_secs(60));
const REFRESHING_SANDBOXES: usize = 20_000;

/// Runs the role until shutdown is requested; `served` is what it can do.
///
/// # Errors
/// If it cannot start, or an essential task ends early.
pub async fn run(config: Config, served: Served, shutdown: Shutdown) -> anyhow::Result<()> {
    let rules = config.rules();
    let Config {
        broker,
        database,
        keys,
        admin,
        command_slots,
        report_slots,
        stream_replicas,
        request_id_quota,
        token_lifetime_seconds,
        provisioning_seconds: _,
        default_image: _,
        members_per_workspace: _,
        effect_seconds,
        templates_per_workspace: _,
        service_urls: _,
        bootstrap,
    } = config;
    Method::check_rules()?;
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
    let settings = DatabaseSettings {
        url: database.url()?.to_owned(),
        user: user(ROLE).context("the role has no database user")?.to_owned(),
        password: keys.postgres_password()?.clone(),
        pool_size: database.connections(),
        role: ROLE,
        process_id,
        quota: request_id_quota,
    };
    // Commands that wait for a row must not keep renewals, marks and sweeps from a connection.
    let aside = (settings.pool_size / 4).max(2);
    let commands = Database::connect(DatabaseSettings {
        pool_size: settings.pool_size.saturating_sub(aside).max(1),
        ..settings.clone()
    })?;
    let database = Database::connect(DatabaseSettings { pool_size: aside, ..settings })?;
    service.metrics.register(|registry| bus.register(registry));
    let metrics = Arc::new(service.metrics.register(Metrics::register));
    let (marks, relay) = Relay::new(bus.clone(), database.clone(), Arc::clone(&metrics));
    let (events, publisher) = Events::new(bus.clone(), Arc::clone(&metrics));
    let timer = Timer::default();
    let sweeps = Sweeps {
        database: database.clone(),
        marks: marks.clone(),
        events: events.clone(),
        metrics: Arc::clone(&metrics),
        ids: Arc::new(RandomIds),
        rules: rules.clone(),
        timer: timer.clone(),
    };
    let (results, waiting) = joined();
    let parts = Arc::new(Parts {
        core: core(&keys, served, rules, &metrics)?,
        opener: opener(&keys, bootstrap.verifier()?)?,
        minter: Minter { signer: keys.token_signer()?, lifetime: Duration::from_secs(token_lifetime_seconds) },
        database: commands,
        bus: bus.clone(),
        marks,
        events,
        timer,
        metrics,
        again: Again::new(command_slots, report_slots),
        effect_time: Duration::from_secs(effect_seconds),
        effect_slots: Semaphore::new(usize::from(command_slots / 4).max(1)),
        results,
        report_slots: Semaphore::new(report_slots.into()),
    });
    let executor = Executor(Arc::clone(&parts));

    let tasks = &service.tasks;
    tasks.optional(Phase::Background, "database check", |stop| {
        let database = database.clone();
        async move {
            if stop.run_until_cancelled(database.answers()).await.is_some() {
                database_ready.release();
            }
            Ok::<_, Infallible>(())
        }
    });
    tasks.optional(Phase::Background, "broker check", |stop| {
        let bus = bus.clone();
        async move {
            let parts = Stream::ALL.map(topology::Part::Stream);
            if stop.run_until_cancelled(topology::wait(&bus, &parts)).await.is_some() {
                broker_ready.release();
            }
            Ok::<_, Infallible>(())
        }
    });
    tasks.essential(Phase::Background, "topology", |stop| {
        let bus = bus.clone();
        async move {
            topology::keep(&bus, stream_replicas.into(), stop).await;
            Ok::<_, Infallible>(())
        }
    });
    tasks.essential(Phase::Background, "results of sessions", |stop| {
        let executor = executor.clone();
        async move {
            let settle = |results| {
                let executor = executor.clone();
                async move { executor.together(results).await }
            };
            waiting.run(together::LIMITS, stop, settle).await;
            Ok::<_, Infallible>(())
        }
    });
    let reports = report_slots.max(REPORTS_IN_HAND);
    for (name, queue, slots) in [("commands", Queue::Commands, command_slots), ("reports", Queue::Reports, reports)] {
        tasks.essential(Phase::Serving, name, |stop| {
            let (bus, executor) = (bus.clone(), executor.clone());
            async move {
                pull::run(&bus, queue.consumer(), slots.into(), stop, move |delivery| {
                    let executor = executor.clone();
                    async move { executor.take(queue, delivery).await }
                })
                .await
            }
        });
    }
    tasks.essential(Phase::Background, "renewals", |stop| {
        let (bus, endpoints) = (bus.clone(), renew::endpoints(&database));
        async move { service::serve(&bus, "roadstead-admission", endpoints, RENEWALS, stop).await }
    });
    tasks.essential(Phase::Background, "operators", |stop| {
        let (bus, endpoints) = (bus.clone(), admin::endpoints(&parts));
        async move { service::serve(&bus, "roadstead-operators", endpoints, OPERATORS, stop).await }
    });
    tasks.essential(Phase::Background, "own renewal", |stop| {
        let bus = bus.clone();
        async move {
            renew::run(bus, process_id, stop).await;
            Ok::<_, Infallible>(())
        }
    });
    tasks.essential(Phase::Background, "backlog", |stop| {
        let (bus, metrics) = (bus.clone(), Arc::clone(&parts.metrics));
        async move {
            backlog::run(bus, metrics, stop).await;
            Ok::<_, Infallible>(())
        }
    });
    tasks.essential(Phase::Background, "poll for marks", |stop| {
        let publisher = relay.publisher();
        async move {
            publisher.poll(stop).await;
            Ok::<_, Infallible>(())
        }
    });
    tasks.essential(Phase::Background, "relay", |stop| async move {
        relay.run(stop).await;
        Ok::<_, Infallible>(())
    });
    tasks.essential(Phase::Background, "events", |stop| publisher.run(stop));
    tasks.essential(Phase::Background, "sweep of sessions", |stop| {
        let sweeps = sweeps.clone();
        async move {
            sweeps.sessions(stop).await;
            Ok::<_, Infallible>(())
        }
    });
    tasks.essential(Phase::Background, "deadlines", |stop| {
        let sweeps = sweeps.clone();
        async move {
            sweeps.deadlines(stop).await;
            Ok::<_, Infallible>(())
        }
    });
    tasks.essential(Phase::Background, "sweep of records", |stop| async move {
        sweeps.records(stop).await;
        Ok::<_, Infallible>(())
    });
    Ok(service.run(&shutdown).await?)
}

/// What commands are decided with.
fn core(keys: &RoleKeys, served: Served, rules: context::Rules, metrics: &Metrics) -> anyhow::Result<Core> {
    // Without its key a protected method refuses request ids; all else goes on.
    let fingerprints = match keys.fingerprints() {
        Ok(keys) => Fingerprints::new(keys),
        Err(error) => {
            tracing::error!(%error, "request ids of protected methods are refused");
            Fingerprints::default()
        }
    };
    metrics.has_keys(fingerprints.key_ids());
    let vault = Box::new(CredentialVault::new(keys.credentials()?));
    Ok(Core { served, rules, fingerprints, vault, ids: Box::new(RandomIds) })
}

/// What commands are opened with.
fn opener(keys: &RoleKeys, bootstrap: Option<BootstrapVerifier>) -> anyhow::Result<Opener> {
    let (most, window) = REFRESHES;
    let refreshes = Limit::new(most, window, REFRESHING_SANDBOXES);
    Ok(Opener { seal: keys.admission_seal()?, tokens: keys.token_verifier()?, bootstrap, refreshes })
}
