//! The pool of connections of one role.

use std::time::{Duration, SystemTime};

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use roadstead_proto::role::Role;
use secrecy::{ExposeSecret, SecretString};
use tokio_postgres::{Config, Row};
use tokio_postgres_rustls::MakeRustlsConnect;
use uuid::Uuid;

use crate::error::StoreError;
use crate::fields::only;
use crate::flight::{Flight, Step};
use crate::lease::Lease;
use crate::tls::{self, TlsError};

/// Claims that a caller may hold unless the deployment says otherwise.
pub const DEFAULT_QUOTA: u32 = 1000;

/// How to reach Postgres and as whom.
#[derive(Clone, Debug)]
pub struct DatabaseSettings {
    /// Host, port and database, such as `postgresql://127.0.0.1:5432/roadstead`, and for TLS
    /// `?sslmode=require&sslrootcert=FILE`, see [`crate::tls`]. A user or password in it yields to the fields below.
    pub url: String,
    pub user: String,
    pub password: SecretString,
    /// Most connections at a time. A mutation holds one for its two flights.
    pub pool_size: usize,
    /// Shown in `pg_stat_activity`.
    pub role: Role,
    /// This process, as it renews its liveness row. It judges others by it.
    pub process_id: Uuid,
    /// Most claims (completed less than a day ago, or unresolved) that one caller may hold.
    pub quota: u32,
}

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("the database's address is not one")]
    Url(#[source] tokio_postgres::Error),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("no pool can be made of these settings")]
    Pool(#[source] deadpool_postgres::BuildError),
}

/// Postgres, as one role sees it. Clones share the pool.
#[derive(Clone, Debug)]
pub struct Database {
    pool: Pool,
    process_id: Uuid,
    quota: u32,
}

/// Options of every connection. A frozen holder of locks loses its transaction (D3), a query without a client ends, and
/// plans are made once and by index, in the index's order, so that one made on a small table still holds on a large one.
const OPTIONS: &str = "-c search_path=roadstead -c idle_in_transaction_session_timeout=4000 \
    -c client_connection_check_interval=1000 -c statement_timeout=8000 -c lock_timeout=4000 \
    -c default_transaction_isolation=read\\ committed -c TimeZone=UTC -c jit=off \
    -c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_bitmapscan=off";

impl Database {
    /// Makes the pool. Connections are opened when they are needed, so a Postgres that is away shows at the first use.
    ///
    /// # Errors
    /// The settings cannot be used.
    pub fn connect(settings: DatabaseSettings) -> Result<Self, SettingsError> {
        let DatabaseSettings { url, user, password, pool_size, role, process_id, quota } = settings;
        let (config, tls) = config(&url, &user, &password, &format!("roadstead-{role}/{process_id}"))?;
        let manager = Manager::from_config(config, tls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
        let pool = Pool::builder(manager)
            .max_size(pool_size)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(Duration::from_secs(5)))
            .create_timeout(Some(Duration::from_secs(5)))
            .recycle_timeout(Some(Duration::from_secs(1)))
            .build()
            .map_err(SettingsError::Pool)?;
        Ok(Self { pool, process_id, quota })
    }

    /// This process, as it renews its liveness row.
    #[must_use]
    pub fn process_id(&self) -> Uuid {
        self.process_id
    }

    /// Postgres's clock, in microseconds. Also a check that it answers.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn now(&self) -> Result<SystemTime, StoreError> {
        let rows = self.rows(Step::plain("SELECT clock_timestamp()")).await?;
        Ok(only(&rows, |fields| fields.time())?)
    }

    /// Waits until Postgres answers. Says once that it waits.
    pub async fn answers(&self) {
        let mut said = false;
        while let Err(error) = self.now().await {
            if !said {
                said = true;
                tracing::info!(error = &error as &dyn std::error::Error, "waiting for Postgres");
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    pub(crate) fn quota(&self) -> u32 {
        self.quota
    }

    pub(crate) async fn lease(&self) -> Result<Lease, StoreError> {
        Ok(Lease::new(self.pool.get().await?))
    }

    /// Runs one statement.
    pub(crate) async fn rows(&self, step: Step) -> Result<Vec<Row>, StoreError> {
        let mut flight = Flight::default();
        let slot = flight.add(step);
        let lease = self.lease().await?;
        let mut answers = lease.read(flight).await.map_err(StoreError::of)?;
        Ok(answers.take(slot))
    }
}

/// How a role connects.
fn config(
    url: &str,
    user: &str,
    password: &SecretString,
    application: &str,
) -> Result<(Config, MakeRustlsConnect), SettingsError> {
    let (mut config, tls) = reachable(url)?;
    config.user(user).password(password.expose_secret()).application_name(application).options(OPTIONS);
    Ok((config, tls))
}

/// Options of the owner's connections. One whose process was killed, or cut off, must not hold its locks for long, and a
/// migration that waits for a busy table must not make everybody else queue up behind it.
const OWNER_OPTIONS: &str = "-c search_path=roadstead -c TimeZone=UTC -c client_connection_check_interval=1000 \
    -c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3 -c lock_timeout=10000";

/// How the owner connects, by what the address says.
pub(crate) fn owner_config(url: &str) -> Result<(Config, MakeRustlsConnect), SettingsError> {
    let (mut config, tls) = reachable(url)?;
    config.application_name("roadstead-owner").options(OWNER_OPTIONS);
    Ok((config, tls))
}

fn reachable(url: &str) -> Result<(Config, MakeRustlsConnect), SettingsError> {
    let (mut config, tls) = tls::parse(url)?;
    config
        .connect_timeout(Duration::from_secs(3))
        .keepalives_idle(Duration::from_secs(5))
        .keepalives_interval(Duration::from_secs(2))
        .keepalives_retries(3)
        .tcp_user_timeout(Duration::from_secs(10));
    Ok((config, tls))
}
