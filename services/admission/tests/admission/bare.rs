//! Admission's core on a real Postgres, without the broker between: one attempt after the other, on one connection.

use std::time::{Duration, SystemTime};

use roadstead_admission::attempt::{Core, Next, Opened};
use roadstead_admission::caller::Caller;
use roadstead_admission::context::{RandomIds, Rules};
use roadstead_admission::ledger::Fingerprints;
use roadstead_admission::operation::Name;
use roadstead_admission::vault::CredentialVault;
use roadstead_proto::method::Method;
use roadstead_proto::role::Role;
use roadstead_service_kit::keyring::Keyring;
use roadstead_store::mutation::Outcome;
use roadstead_store::{Database, DatabaseSettings, FlightError};
use roadstead_testkit::sql::Session;
use roadstead_testkit::{Proxy, database};
use uuid::Uuid;

use crate::requests::Request;
use crate::world::{login, migrated, root};

pub(crate) struct Bare {
    core: Core,
    pub(crate) store: Database,
    /// Before Postgres.
    pub(crate) wire: Proxy,
    pub(crate) sql: Session,
    _database: database::Database,
}

impl Bare {
    pub(crate) async fn new() -> Self {
        let database = migrated().await;
        let login = login(&database);
        let wire = Proxy::before_postgres(([127, 0, 0, 1], login.port).into()).await;
        let settings = DatabaseSettings {
            url: format!("postgres://{}/{}", wire.address(), database.name()),
            user: login.user.clone(),
            password: login.password.clone(),
            pool_size: 1,
            role: Role::Admission,
            process_id: Uuid::new_v4(),
            quota: 100_000,
        };
        let keys = Keyring::generate(SystemTime::now()).unwrap().export(Role::Admission);
        let core = Core {
            served: roadstead_admission::Served::default(),
            rules: Rules::default(),
            fingerprints: Fingerprints::new(keys.fingerprints().unwrap()),
            vault: Box::new(CredentialVault::new(keys.credentials().unwrap())),
            ids: Box::new(RandomIds),
        };
        let store = Database::connect(settings).unwrap();
        Self { core, store, wire, sql: database.session().await, _database: database }
    }

    /// Executes a request as a command of its own, which must succeed.
    pub(crate) async fn done(&self, request: &Request) {
        match self.attempt(Uuid::now_v7(), request.method, &request.bytes()).await.unwrap() {
            Outcome::Response { .. } => {}
            other => panic!("{}: {other:?}", request.method),
        }
    }

    /// One attempt at a command: both flights.
    pub(crate) async fn attempt(&self, id: Uuid, method: Method, request: &[u8]) -> Result<Outcome, FlightError> {
        self.attempt_with(id, method, request, || ()).await
    }

    /// The same, with something done between the flights.
    pub(crate) async fn attempt_with(
        &self,
        id: Uuid,
        method: Method,
        request: &[u8],
        between: impl FnOnce(),
    ) -> Result<Outcome, FlightError> {
        let attempt = self.core.attempt(Opened {
            id,
            name: Name::Method(method),
            caller: Caller::User(root()),
            request: request.to_vec().into(),
            deadline: SystemTime::now() + Duration::from_secs(60),
            traceparent: String::new(),
            refused: None,
        });
        let in_flight = self.store.first_flight(&attempt.command, &attempt.locks).await?;
        between();
        match attempt.decide(in_flight.loaded(), false) {
            Next::Conclude(conclusion) => Ok(in_flight.conclude(conclusion).await?.outcome),
            Next::Tell(outcome) => {
                in_flight.abandon().await;
                Ok(outcome)
            }
            other => panic!("{method}: {other:?}"),
        }
    }
}
