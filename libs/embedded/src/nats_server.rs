//! nats-server with JetStream on a folder.

use std::{
    fs::{self, File},
    io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::signal::Signal;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpStream,
    process::Command,
    time::{Instant, sleep, timeout},
};

use crate::{Error, Process, folder, keep::Server, port, process::Signals};

const NAME: &str = "nats-server";
const POLL: Duration = Duration::from_millis(5);
const READY_TIME: Duration = Duration::from_secs(20);
const STORE: &str = "store";

/// What a nats-server is started with.
#[derive(Debug, Clone)]
pub struct NatsSettings {
    /// The program, see [`crate::Binaries`].
    pub program: PathBuf,
    /// The folder for its store, configuration and log; made if it is not there.
    pub folder: PathBuf,
    /// The loopback port to listen on; `None` for a free one, which it then keeps over restarts.
    pub port: Option<u16>,
    /// Configuration text beside address, store and process id: users and limits.
    pub config: String,
}

/// A prepared nats-server: its folder is claimed and its configuration written.
#[derive(Debug)]
pub struct NatsServer {
    program: PathBuf,
    folder: PathBuf,
    port: u16,
    /// Tells it from any other that may answer on the port. The same over restarts: members of a cluster know one another
    /// by their names.
    name: String,
    _claim: File,
}

impl NatsServer {
    /// Claims the folder, chooses the port and writes the configuration.
    ///
    /// # Errors
    /// The folder is in use or cannot be written, or no port is free.
    pub fn prepare(settings: &NatsSettings) -> Result<Self, Error> {
        let NatsSettings { program, folder, port, config } = settings;
        folder::make(folder, 0o700)?;
        let folder = fs::canonicalize(folder).map_err(Error::file(folder))?;
        let claim = folder::claim(&folder)?;
        let port = port.map_or_else(port::free, Ok)?;
        let name = format!("roadstead-{:016x}", rand::random::<u64>());
        let server = Self { program: program.clone(), folder, port, name, _claim: claim };
        server.configure(config)?;
        Ok(server)
    }

    /// Writes another configuration text; it counts from the next start, or from a reload signal (SIGHUP).
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn configure(&self, config: &str) -> Result<(), Error> {
        folder::write_private(&self.config_file(), &self.config_text(config))
    }

    /// The loopback port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address for clients.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// The folder that holds all streams; while the server is stopped it may be copied, replaced or removed.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.folder.join(STORE)
    }

    fn config_file(&self) -> PathBuf {
        self.folder.join("server.conf")
    }

    fn pid_file(&self) -> PathBuf {
        self.folder.join("pid")
    }

    fn config_text(&self, rest: &str) -> String {
        let quoted = |path: &Path| format!("{:?}", path.display().to_string());
        format!(
            "listen: \"127.0.0.1:{}\"\npid_file: {}\njetstream {{ store_dir: {} }}\n{rest}\n",
            self.port,
            quoted(&self.pid_file()),
            quoted(&self.store()),
        )
    }
}

impl Server for NatsServer {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn start(&self) -> Result<Process, Error> {
        folder::wait_for_remains(&self.pid_file(), NAME).await?;
        let mut command = Command::new(&self.program);
        command.arg("--config").arg(self.config_file()).arg("--name").arg(&self.name).current_dir(&self.folder);
        let signals = Signals { stop: Signal::SIGTERM, abort: Signal::SIGKILL };
        let mut process = Process::spawn(NAME, command, signals, &self.folder.join("log"))?;
        let deadline = Instant::now() + READY_TIME;
        loop {
            if greets(self.port, &self.name).await {
                return Ok(process);
            }
            if let Some(status) = process.ended() {
                return Err(Error::Ended { name: NAME, status, log: process.log_tail() });
            }
            if Instant::now() > deadline {
                return Err(Error::NotReady { name: NAME, waited: READY_TIME, log: process.log_tail() });
            }
            sleep(POLL).await;
        }
    }
}

/// Whether the server called `name` greets on the port. It listens only once JetStream has recovered its streams.
async fn greets(port: u16, name: &str) -> bool {
    let greeting = async {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).await?;
        io::Result::Ok(line)
    };
    matches!(timeout(Duration::from_secs(1), greeting).await, Ok(Ok(line)) if line.starts_with("INFO") && line.contains(name))
}
