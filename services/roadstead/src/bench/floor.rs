//! The floors: what broker and database cost by themselves. The mutation is planned and decided by admission's own core
//! and flown by the store, so its statements are those of the path that is measured; only doors, broker and sealing are
//! left out.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use prost::Message as _;
use roadstead_admission::attempt::{Attempt, Core, Next, Opened};
use roadstead_admission::caller::Caller;
use roadstead_admission::context::{RandomIds, Rules};
use roadstead_admission::ledger::Fingerprints;
use roadstead_admission::operation::Name;
use roadstead_admission::vault::CredentialVault;
use roadstead_bus::{Bus, ConnectSettings};
use roadstead_proto::internal::User;
use roadstead_proto::method::Method;
use roadstead_proto::role::Role;
use roadstead_service_kit::role_keys::RoleKeys;
use roadstead_store::migrate::user;
use roadstead_store::{Committed, Database, DatabaseSettings, FlightError};
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::figure::Figure;
use super::measure::{AsyncCall, Measure};
use super::path::{self, Load};
use super::stage::Stage;
use crate::all::run_file::RunFile;
use crate::operate::keys::Layout;

/// As many connections as an admission has by default, twice: the path has two of them.
const CONNECTIONS: usize = 32;
const DEADLINE: Duration = Duration::from_secs(60);
/// As often as admission tries within one delivery.
const TRIES: u32 = 4;

/// Broker and database, reached as admission reaches them.
pub(crate) struct Floor {
    bus: Bus,
    database: Database,
    core: Arc<Core>,
    /// Callers wait here for a connection: the pool's own patience is for a deployment, not for a load.
    connections: Arc<Semaphore>,
}

impl Floor {
    pub(crate) async fn open(stage: &Stage) -> anyhow::Result<Self> {
        let data = stage.target.folder();
        let run = RunFile::load(data)?;
        let keys = RoleKeys::load(&Layout::new(&data.join("keys")).role_file(Role::Admission), Role::Admission)?;
        let bus = Bus::connect(ConnectSettings {
            url: run.nats_url,
            name: "roadstead bench".to_owned(),
            role: Role::Admission,
            nkey_seed: Some(keys.broker_seed().clone()),
            ca: None,
        })
        .await?;
        bus.connected().await;
        let database = Database::connect(DatabaseSettings {
            url: run.database_url,
            user: user(Role::Admission).context("the role has no database user")?.to_owned(),
            password: keys.postgres_password()?.clone(),
            pool_size: CONNECTIONS,
            role: Role::Admission,
            process_id: Uuid::new_v4(),
            quota: u32::MAX,
        })?;
        let core = Core {
            served: roadstead_admission::Served::default(),
            rules: Rules::default(),
            fingerprints: Fingerprints::new(keys.fingerprints()?),
            vault: Box::new(CredentialVault::new(keys.credentials()?)),
            ids: Box::new(RandomIds),
        };
        Ok(Self { bus, database, core: Arc::new(core), connections: Arc::new(Semaphore::new(CONNECTIONS)) })
    }

    /// What one caller gets of each: a round trip, two flights.
    pub(crate) async fn measure(&self, measure: Measure) -> anyhow::Result<Vec<Figure>> {
        Ok(vec![
            measure.run("broker: one round trip", 1, |_| self.round_trip()).await?,
            measure.run("database: two flights", 1, |at| self.mutate(Load::apart(false), at)).await?,
        ])
    }

    pub(crate) fn round_trip(&self) -> RoundTrip {
        RoundTrip(self.bus.clone())
    }

    pub(crate) fn mutate(&self, load: Load, at: usize) -> Flights {
        let (core, connections) = (Arc::clone(&self.core), Arc::clone(&self.connections));
        Flights { database: self.database.clone(), core, connections, load, at, on: false }
    }

    /// How many marks are committed and not published.
    pub(crate) async fn waiting_marks(&self) -> anyhow::Result<u64> {
        Ok(self.database.waiting_marks().await?)
    }
}

/// A message to oneself through the broker.
pub(crate) struct RoundTrip(Bus);

impl AsyncCall for RoundTrip {
    async fn call(&mut self) -> anyhow::Result<()> {
        Ok(self.0.barrier().await?)
    }
}

/// The mutation without its path.
pub(crate) struct Flights {
    database: Database,
    core: Arc<Core>,
    connections: Arc<Semaphore>,
    load: Load,
    at: usize,
    on: bool,
}

impl Flights {
    async fn mutate(&self, attempt: &Attempt<'_>) -> anyhow::Result<()> {
        let _connection = self.connections.acquire().await?;
        let mut tried = 1;
        let committed = loop {
            match self.fly(attempt).await {
                Err(error) if tried < TRIES && is_tried_again(&error) => tried += 1,
                flown => break flown?,
            }
        };
        // The relay's part of the same mutation.
        let marks = committed.outbox.iter().map(|mark| mark.id).collect();
        self.database.delete_marks(marks).await?;
        Ok(())
    }

    async fn fly(&self, attempt: &Attempt<'_>) -> anyhow::Result<Committed> {
        let in_flight = self.database.first_flight(&attempt.command, &attempt.locks).await?;
        match attempt.decide(in_flight.loaded(), false) {
            Next::Conclude(conclusion) => Ok(in_flight.conclude(conclusion).await?),
            other => bail!("the floor's mutation was not executed: {other:?}"),
        }
    }
}

/// Whether admission would try again, too.
fn is_tried_again(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(FlightError::Retry(_) | FlightError::Guard(_)))
}

impl AsyncCall for Flights {
    async fn call(&mut self) -> anyhow::Result<()> {
        self.on = !self.on;
        let caller = User {
            provider: "local_dev".to_owned(),
            subject: self.load.subject(self.at),
            platform_admin: true,
            ..User::default()
        };
        let attempt = self.core.attempt(Opened {
            id: Uuid::now_v7(),
            name: Name::Method(Method::UpdateConfig),
            caller: Caller::User(caller),
            request: path::toggle(self.load, self.at, self.on).encode_to_vec().into(),
            deadline: SystemTime::now() + DEADLINE,
            traceparent: String::new(),
            refused: None,
        });
        self.mutate(&attempt).await
    }
}
