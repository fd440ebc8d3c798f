//! A test's own nats-server.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::signal::Signal;
use roadstead_embedded::{NatsServer, NatsSettings, Process, keep::Server, port};
use serde_json::Value;
use tempfile::TempDir;

use crate::{Victim, plain_http, programs};

const STOP_TIME: Duration = Duration::from_secs(20);

/// A nats-server with JetStream on a folder and a port of its own; it starts in some fifty milliseconds, which makes
/// a process per test cheaper than sharing one, and lets a test do to it what it likes.
#[derive(Debug)]
pub struct Broker {
    // Declared in this order so that the process ends before its folder goes.
    process: Option<Process>,
    server: NatsServer,
    monitor: u16,
    /// What makes it a member of a cluster.
    cluster: String,
    _folder: TempDir,
}

impl Broker {
    /// Starts one; `config` is its configuration text beside address and store (users, limits).
    pub async fn start(config: &str) -> Self {
        let mut broker = Self::prepare(config);
        broker.resume().await;
        broker
    }

    /// One that is down, but has its address and folder.
    #[must_use]
    pub fn prepare(config: &str) -> Self {
        Self::prepare_member(config, String::new())
    }

    /// So many that are down and form a cluster when they are up.
    #[must_use]
    pub fn prepare_cluster(count: usize, config: &str) -> Vec<Self> {
        let ports: Vec<_> = (0..count).map(|_| port::free().unwrap()).collect();
        let routes = ports.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect::<Vec<_>>().join(", ");
        let cluster = |port| format!("cluster {{ name: one, listen: \"127.0.0.1:{port}\", routes: [{routes}] }}\n");
        ports.iter().map(|port| Self::prepare_member(config, cluster(port))).collect()
    }

    fn prepare_member(config: &str, cluster: String) -> Self {
        let folder = tempfile::Builder::new().prefix("roadstead-nats-").tempdir().unwrap();
        let monitor = port::free().unwrap();
        let settings = NatsSettings {
            program: programs::servers().nats_server,
            folder: folder.path().to_owned(),
            port: None,
            config: member(config, monitor, &cluster),
        };
        let server = NatsServer::prepare(&settings).unwrap_or_else(|error| panic!("{error}"));
        Self { process: None, server, monitor, cluster, _folder: folder }
    }

    /// Gives it another configuration text, which counts from its next start.
    pub fn configure(&self, config: &str) {
        self.server.configure(&member(config, self.monitor, &self.cluster)).unwrap_or_else(|error| panic!("{error}"));
    }

    /// The folder its streams are in.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.server.store()
    }

    /// The address for clients, the same over restarts.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// What it says of itself at `path`, such as `/varz`.
    ///
    /// # Panics
    /// It is down.
    pub async fn monitor(&self, path: &str) -> Value {
        let (_, body) = plain_http::get((Ipv4Addr::LOCALHOST, self.monitor).into(), path).await.unwrap();
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path} is no JSON ({error}): {body}"))
    }

    /// Stops it in order. Nothing happens if it is down.
    pub async fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop(STOP_TIME).await.unwrap();
        }
    }

    /// Kills it (SIGKILL). Nothing happens if it is down.
    pub async fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.signal(Signal::SIGKILL).unwrap();
            process.wait().await.unwrap();
        }
    }

    /// Starts it on what its folder holds. Nothing happens if it is up.
    pub async fn resume(&mut self) {
        if self.process.is_none() {
            self.process = Some(self.server.start().await.unwrap_or_else(|error| panic!("{error}")));
        }
    }

    /// Stops it and starts it again.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.resume().await;
    }

    /// Restarts it on an empty store: all streams, buckets and consumers are gone.
    pub async fn wipe(&mut self) {
        self.stop().await;
        remove(&self.server.store());
        self.resume().await;
    }

    /// Copies its store to `to` (stopping it meanwhile), for [`Broker::roll_back`].
    pub async fn save(&mut self, to: &Path) {
        self.stop().await;
        copy(&self.server.store(), to);
        self.resume().await;
    }

    /// Restarts it on a store that [`Broker::save`] has copied.
    pub async fn roll_back(&mut self, from: &Path) {
        self.stop().await;
        remove(&self.server.store());
        copy(from, &self.server.store());
        self.resume().await;
    }

    /// Its process, to freeze and thaw.
    ///
    /// # Panics
    /// It is down.
    #[must_use]
    pub fn victim(&self) -> Victim {
        Victim::new(self.process.as_ref().expect("the broker is up").pid())
    }
}

fn member(config: &str, monitor: u16, cluster: &str) -> String {
    format!("http: \"127.0.0.1:{monitor}\"\n{cluster}{config}")
}

fn remove(folder: &Path) {
    if folder.exists() {
        fs::remove_dir_all(folder).unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
