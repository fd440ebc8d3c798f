//! A broker, the bridge, those whom it talks to, and supervisors.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use clap::Parser;
use prost::Message as _;
use roadstead_bus::permissions::{Auth, limits_and_users};
use roadstead_bus::{Bus, ConnectSettings, Subscription};
use roadstead_proto::api::v1::open_shell_client::OpenShellClient;
use roadstead_proto::internal::{BridgePresence, Rebalanced};
use roadstead_proto::role::Role;
use roadstead_proto::subject;
use roadstead_service_kit::keyring::Keyring;
use roadstead_service_kit::role_keys::RoleKeys;
use roadstead_service_kit::sandbox_token::TokenSigner;
use roadstead_service_kit::shutdown::Shutdown;
use roadstead_supervisor::{Behaviour, Frame, Recorder, Settings, Supervisor, TokenSource};
use roadstead_supervisor_bridge::Config;
use roadstead_testkit::{Broker, eventually};
use secrecy::{ExposeSecret as _, SecretString};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::Channel;
use tonic::{Request, metadata::MetadataValue};
use uuid::Uuid;

use crate::desk::Desk;
use crate::shelf::{Content, Shelf};

/// Long enough for any condition on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    config: Config,
}

pub(crate) struct World {
    pub(crate) broker: Broker,
    /// What it is configured with.
    pub(crate) permissions: String,
    pub(crate) desk: Desk,
    pub(crate) shelf: Shelf,
    pub(crate) config_snapshot: Bus,
    /// An edge's connection.
    pub(crate) edge: Bus,
    operator: Bus,
    signer: TokenSigner,
    keys: TempDir,
    pub(crate) stop: CancellationToken,
    _stop: DropGuard,
}

/// A bridge that runs in this process.
pub(crate) struct BridgeProcess {
    pub(crate) address: SocketAddr,
    admin: SocketAddr,
    pub(crate) shutdown: Shutdown,
    task: JoinHandle<anyhow::Result<()>>,
}

/// What bridges tell each other.
pub(crate) struct Presences {
    told: Subscription,
    _bus: Bus,
}

/// A supervisor and what it saw.
pub(crate) struct Watched {
    pub(crate) supervisor: Supervisor,
    pub(crate) recorder: Recorder,
}

impl World {
    /// Everything but a bridge. Configuration reads are answered.
    pub(crate) async fn new() -> Self {
        let world = Self::without_reads().await;
        world.shelf.open(&world.config_snapshot, world.stop.clone());
        world
    }

    /// As if no config-snapshot ran: nobody answers reads. Watch beats.
    pub(crate) async fn without_reads() -> Self {
        let keyring = Keyring::generate(SystemTime::now()).unwrap();
        let users = keyring.export_broker();
        let users = users.users().flat_map(|(role, keys)| keys.iter().map(move |key| (role, key.clone())));
        let permissions = limits_and_users(&Auth::Nkeys(users.collect()));
        let broker = Broker::start(&permissions).await;
        let keys = tempfile::tempdir().unwrap();
        let bridge_keys = keyring.export(Role::SupervisorBridge);
        bridge_keys.save(&keys.path().join("bridge.json")).unwrap();

        let stop = CancellationToken::new();
        let admission = keyring.export(Role::Admission);
        let bus = connect(&broker, Role::Admission, &admission).await;
        let desk = Desk::open(&bus, admission.admission_seal().unwrap(), stop.clone()).await;
        let config_snapshot = connect(&broker, Role::ConfigSnapshot, &keyring.export(Role::ConfigSnapshot)).await;
        let edge = connect(&broker, Role::Edge, &keyring.export(Role::Edge)).await;
        let operator = connect(&broker, Role::Operator, &keyring.export(Role::Operator)).await;
        let watch = connect(&broker, Role::Watch, &keyring.export(Role::Watch)).await;
        let shelf = Shelf::new(&config_snapshot, &watch, keyring.export(Role::ConfigSnapshot).snapshots().unwrap());
        shelf.beat(stop.clone());
        let signer = admission.token_signer().unwrap();
        let _stop = stop.clone().drop_guard();
        Self { broker, permissions, desk, shelf, config_snapshot, edge, operator, signer, keys, stop, _stop }
    }

    /// What bridges tell each other from now on.
    pub(crate) async fn presences(&self) -> Presences {
        let keys = RoleKeys::load(&self.keys.path().join("bridge.json"), Role::SupervisorBridge).unwrap();
        let bus = connect(&self.broker, Role::SupervisorBridge, &keys).await;
        Presences { told: bus.subscribe_effective(subject::PRESENCE).await.unwrap(), _bus: bus }
    }

    /// Evens the sessions out, as an operator does.
    pub(crate) async fn rebalance(&self) -> Rebalanced {
        let answer = self.operator.request(subject::REBALANCE, Bytes::new(), LONG).await.unwrap();
        Rebalanced::decode(answer).unwrap()
    }

    /// Starts a bridge and waits until it is ready. `{listen}` in a flag stands for its address.
    pub(crate) async fn bridge(&self, flags: &[&str]) -> BridgeProcess {
        self.bridge_through(&self.broker.url(), flags).await
    }

    /// The same, with another way to the broker.
    pub(crate) async fn bridge_through(&self, broker: &str, flags: &[&str]) -> BridgeProcess {
        let bridge = self.starting_bridge(broker, flags);
        bridge.ready().await;
        bridge
    }

    /// The same, which may not be ready yet.
    pub(crate) fn starting_bridge(&self, broker: &str, flags: &[&str]) -> BridgeProcess {
        let (address, admin) = (free_address(), free_address());
        let keys = self.keys.path().join("bridge.json");
        let mut line = vec![
            "bridge".to_owned(),
            format!("--nats-url={broker}"),
            format!("--keys={}", keys.display()),
            format!("--listen={address}"),
            format!("--admin-listen={admin}"),
        ];
        line.extend(flags.iter().map(|flag| flag.replace("{listen}", &address.to_string())));
        let config = Flags::parse_from(line).config;
        let shutdown = Shutdown::new();
        let task = tokio::spawn(roadstead_supervisor_bridge::run(config, shutdown.clone()));
        BridgeProcess { address, admin, shutdown, task }
    }

    /// A token of the sandbox that was minted so long ago.
    pub(crate) fn token(&self, sandbox_id: Uuid, age: Duration, lifetime: Duration) -> SecretString {
        self.signer.mint(sandbox_id, 1, SystemTime::now() - age, lifetime).token
    }

    pub(crate) fn fresh_token(&self, sandbox_id: Uuid) -> SecretString {
        self.token(sandbox_id, Duration::ZERO, Duration::from_secs(900))
    }

    /// A sandbox that has content, and its supervisor, connected.
    pub(crate) async fn supervised(&self, bridge: &BridgeProcess, behaviour: Behaviour) -> (Uuid, Watched) {
        let sandbox_id = Uuid::new_v4();
        self.shelf.put(sandbox_id, &Content::version(1)).await;
        let watched = self.supervisor(&[bridge], sandbox_id, |settings| settings.behaviour = behaviour);
        watched.connected().await;
        (sandbox_id, watched)
    }

    /// A supervisor of the sandbox.
    pub(crate) fn supervisor(
        &self,
        bridges: &[&BridgeProcess],
        sandbox_id: Uuid,
        adjust: impl FnOnce(&mut Settings),
    ) -> Watched {
        let recorder = Recorder::new(10_000);
        let mut settings = Settings::new("", "w", "s", TokenSource::Given(self.fresh_token(sandbox_id)));
        settings.bridges = bridges.iter().map(|bridge| bridge.url()).collect();
        settings.observer = Some(recorder.observer());
        adjust(&mut settings);
        Watched { supervisor: Supervisor::start(settings).unwrap(), recorder }
    }
}

impl Presences {
    pub(crate) async fn next(&mut self) -> BridgePresence {
        BridgePresence::decode(self.told.next().await.unwrap().payload).unwrap()
    }
}

impl BridgeProcess {
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) async fn client(&self) -> OpenShellClient<Channel> {
        OpenShellClient::connect(self.url()).await.unwrap()
    }

    /// Waits until it is ready.
    pub(crate) async fn ready(&self) {
        eventually(LONG, "the bridge is ready", || async { is_ready(self.admin).await }).await;
    }

    /// Waits until it is not ready for want of this and nothing else.
    pub(crate) async fn waits_for(&self, latch: &str) {
        eventually(LONG, "the bridge waits for one thing", || async {
            let answer = is_ready(self.admin).await.err().ok_or("it is ready".to_owned())?;
            if answer.contains(&format!(r#""waiting_for":["{latch}"]"#)) { Ok(()) } else { Err(answer) }
        })
        .await;
    }

    /// Drains, and waits for the end.
    pub(crate) async fn drain(self) {
        self.shutdown.request();
        tokio::time::timeout(LONG, self.task).await.unwrap().unwrap().unwrap();
    }
}

impl Watched {
    pub(crate) async fn connected(&self) {
        let mut status = self.supervisor.status();
        let connected = status.wait_for(|status| status.connection.is_some());
        tokio::time::timeout(LONG, connected).await.unwrap().unwrap();
    }

    /// Waits until this version is in effect.
    pub(crate) async fn applied(&self, version: u32) {
        let mut status = self.supervisor.status();
        let applied =
            status.wait_for(|status| status.config.as_ref().is_some_and(|config| config.policy_version == version));
        tokio::time::timeout(LONG, applied).await.unwrap_or_else(|_| panic!("version {version}")).unwrap();
    }

    /// Waits for the first frame with this property.
    pub(crate) async fn frame(&self, property: impl Fn(&Frame) -> bool) -> Frame {
        use roadstead_supervisor::Observation::Received;
        let found = self.recorder.wait_for(LONG, |seen| {
            seen.iter().find_map(|seen| match seen {
                Received(frame) if property(frame) => Some(Frame::clone(frame)),
                _ => None,
            })
        });
        found.await.expect("such a frame")
    }

    /// Waits until a session, or attempt, has ended with a reason that contains this.
    pub(crate) async fn ended(&self, with: &str) {
        use roadstead_supervisor::Observation::Ended;
        let found = self.recorder.wait_for(LONG, |seen| {
            seen.iter().find(|seen| matches!(seen, Ended { reason, .. } if reason.contains(with))).map(|_| ())
        });
        if found.await.is_none() {
            panic!("no end with {with:?} in {:?}", self.recorder.observations());
        }
    }

    /// The versions that arrived, in order.
    pub(crate) fn versions(&self) -> Vec<u32> {
        self.recorder.frames().iter().filter_map(|frame| frame.config.as_ref().map(|c| c.policy_version)).collect()
    }
}

/// A request with this token.
pub(crate) fn with_token<T>(message: T, token: &SecretString) -> Request<T> {
    let mut request = Request::new(message);
    let value = format!("Bearer {}", token.expose_secret());
    request.metadata_mut().insert("authorization", MetadataValue::try_from(value).unwrap());
    request
}

async fn connect(broker: &Broker, role: Role, keys: &RoleKeys) -> Bus {
    let bus = Bus::connect(ConnectSettings {
        url: broker.url(),
        name: role.name().to_owned(),
        role,
        nkey_seed: Some(keys.broker_seed().clone()),
        ca: None,
    });
    let bus = bus.await.unwrap();
    tokio::time::timeout(LONG, bus.connected()).await.unwrap();
    bus
}

/// Asks the admin port.
async fn is_ready(admin: SocketAddr) -> Result<(), String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = TcpStream::connect(admin).await.map_err(|error| error.to_string())?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.map_err(|error| error.to_string())?;
    if answer.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(answer) }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
