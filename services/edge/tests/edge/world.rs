//! A broker, an edge on it, and the seats of the other roles.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use clap::Parser;
use prost::Message as _;
use roadstead_bus::permissions::{Auth, limits_and_users};
use roadstead_bus::service::{self, Endpoint};
use roadstead_bus::{Bus, ConnectSettings, topology};
use roadstead_edge::{Config, Edge};
use roadstead_proto::internal::ClockReading;
use roadstead_proto::role::Role;
use roadstead_proto::subject;
use roadstead_service_kit::keyring::Keyring;
use roadstead_service_kit::shutdown::Shutdown;
use roadstead_testkit::Broker;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::client::Client;
use crate::watch_role::WatchRole;

/// Long enough for any condition on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Tokens of two users: `root`, who administrates the platform, and `alice`, who may read sandboxes and no more.
pub(crate) const ROOT: &str = "root-root-root-root";
pub(crate) const ALICE: &str = "alice-alice-alice-alice";
const TOKENS: &str = r#"{"tokens": [
    {"token": "root-root-root-root", "subject": "root", "roles": ["openshell-admin"]},
    {"token": "alice-alice-alice-alice", "subject": "alice", "scopes": ["sandbox:read"]}
]}"#;

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    config: Config,
}

pub(crate) struct World {
    pub(crate) broker: Broker,
    pub(crate) keyring: Keyring,
    /// Admission's connection.
    pub(crate) admission: Bus,
    pub(crate) watch: WatchRole,
    pub(crate) edge: Running,
    _folder: TempDir,
    _clock: DropGuard,
}

/// An edge that runs.
pub(crate) struct Running {
    pub(crate) address: std::net::SocketAddr,
    pub(crate) shutdown: Shutdown,
    pub(crate) ended: JoinHandle<Result<(), roadstead_edge::Error>>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(&[]).await
    }

    /// With further flags for the edge.
    pub(crate) async fn with(flags: &[&str]) -> Self {
        let keyring = Keyring::generate(SystemTime::now()).unwrap();
        let users = keyring.export_broker();
        let users = users.users().flat_map(|(role, keys)| keys.iter().map(move |key| (role, key.clone())));
        let broker = Broker::start(&limits_and_users(&Auth::Nkeys(users.collect()))).await;
        let admission = bus(&broker, &keyring, Role::Admission).await;
        topology::ensure(&admission, 1).await.unwrap();
        let clock = serve_clock(&admission);
        let watch = WatchRole::start(bus(&broker, &keyring, Role::Watch).await).await;

        let folder = tempfile::tempdir().unwrap();
        let (keys, tokens) = (folder.path().join("edge.json"), private_file(&folder, "tokens.json", TOKENS));
        keyring.export(Role::Edge).save(&keys).unwrap();
        let all = [
            "edge",
            "--listen=127.0.0.1:0",
            "--admin-listen=127.0.0.1:0",
            &format!("--nats-url={}", broker.url()),
            &format!("--keys={}", keys.display()),
            &format!("--tokens={}", tokens.display()),
        ];
        let edge = Running::start(&[&all, flags].concat()).await;
        Self { broker, keyring, admission, watch, edge, _folder: folder, _clock: clock }
    }

    /// A client of the edge, as the user with that token.
    pub(crate) async fn client(&self, token: &str) -> Client {
        Client::connect(self.edge.address, token).await
    }

    pub(crate) async fn narrow_client(&self, token: &str) -> Client {
        Client::narrow(self.edge.address, token).await
    }
}

impl Running {
    async fn start(flags: &[&str]) -> Self {
        let edge = Edge::start(Flags::parse_from(flags).config).await.unwrap();
        let (address, readiness, shutdown) = (edge.address(), edge.readiness().clone(), Shutdown::new());
        let stop = shutdown.clone();
        let ended = tokio::spawn(async move { edge.run(&stop).await });
        if tokio::time::timeout(LONG, readiness.ready()).await.is_err() {
            panic!("the edge still waits for {:?}", readiness.waiting_for());
        }
        Self { address, shutdown, ended }
    }
}

pub(crate) async fn bus(broker: &Broker, keyring: &Keyring, role: Role) -> Bus {
    let settings = ConnectSettings {
        url: broker.url(),
        name: role.name().to_owned(),
        role,
        nkey_seed: Some(keyring.export(role).broker_seed().clone()),
        ca: None,
    };
    let bus = Bus::connect(settings).await.unwrap();
    tokio::time::timeout(LONG, bus.connected()).await.unwrap();
    bus
}

/// Admission's part in the comparison of clocks.
fn serve_clock(admission: &Bus) -> DropGuard {
    let endpoint = Endpoint::new(subject::CLOCK, |_| async {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        Bytes::from(ClockReading { now_micros: now.as_micros().try_into().unwrap() }.encode_to_vec())
    });
    let (bus, stop) = (admission.clone(), CancellationToken::new());
    let guard = stop.clone().drop_guard();
    tokio::spawn(async move { service::serve(&bus, "roadstead-admission", vec![endpoint], 8, stop).await });
    guard
}

fn private_file(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}
