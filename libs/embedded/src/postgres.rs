//! Postgres on a folder.

use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::signal::Signal;
use secrecy::{ExposeSecret, SecretString};
use tokio::{
    process::Command,
    time::{Instant, sleep},
};

use crate::{Error, Process, account::Account, folder, keep::Server, port, process::Signals};

const NAME: &str = "postgres";
const POLL: Duration = Duration::from_millis(10);
const READY_TIME: Duration = Duration::from_secs(60);
/// How long a crashed server's remaining processes may hold its memory, in which case a start fails.
const CRASH_REMAINS_TIME: Duration = Duration::from_secs(10);
/// Where root keeps a cluster whose own folder the user of Postgres cannot reach.
const REACHABLE: &str = "/var/lib/roadstead";

/// The superuser of an embedded cluster.
pub const SUPERUSER: &str = "postgres";

/// What a Postgres is started with.
#[derive(Debug, Clone)]
pub struct PostgresSettings {
    /// The folder of its programs, see [`crate::Binaries`].
    pub bin: PathBuf,
    /// The folder for its data, password and log; made if it is not there. Run by root, and where the user of
    /// Postgres cannot reach it, it becomes a link to a folder that user can reach.
    pub folder: PathBuf,
    /// The loopback port to listen on; `None` for a free one, which it then keeps over restarts.
    pub port: Option<u16>,
    /// Server settings (`name`, `value`) beside address and socket.
    pub settings: Vec<(String, String)>,
    /// `false` gives up safety against power loss (not against a kill) for speed; for tests.
    pub durable: bool,
}

/// A prepared Postgres: its folder is claimed and holds a cluster.
#[derive(Debug)]
pub struct PostgresServer {
    bin: PathBuf,
    folder: PathBuf,
    port: u16,
    settings: Vec<(String, String)>,
    account: Option<Account>,
    password: SecretString,
    _claim: File,
}

impl PostgresServer {
    /// Claims the folder, makes the cluster if there is none, and chooses the port.
    ///
    /// # Errors
    /// The folder is in use or cannot be written, initdb fails, or no port is free.
    pub async fn prepare(settings: &PostgresSettings) -> Result<Self, Error> {
        let PostgresSettings { bin, folder, port, settings, durable } = settings;
        let account = Account::for_postgres()?;
        let folder = reachable(folder, account.as_ref())?;
        let claim = folder::claim(&folder)?;
        let password = password(&folder, account.as_ref())?;
        let mut settings = settings.clone();
        if !durable {
            settings.extend(["fsync", "full_page_writes"].map(|name| (name.into(), "off".into())));
        }
        let port = port.map_or_else(port::free, Ok)?;
        let server = Self { bin: bin.clone(), folder, port, settings, account, password, _claim: claim };
        if !server.data().exists() {
            server.make_cluster(*durable).await?;
        }
        Ok(server)
    }

    /// The loopback port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The password of [`SUPERUSER`].
    #[must_use]
    pub fn superuser_password(&self) -> &SecretString {
        &self.password
    }

    /// The folder of its programs, `psql` among them where it is installed.
    #[must_use]
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// The folder everything is in, links followed.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn pid_file(&self) -> PathBuf {
        self.data().join("postmaster.pid")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command.current_dir(&self.folder);
        if let Some(account) = &self.account {
            account.hand_over(&mut command);
        }
        command
    }

    /// Makes the cluster beside its place and moves it there whole, so that a half-made one is never taken for one.
    async fn make_cluster(&self, durable: bool) -> Result<(), Error> {
        let unfinished = self.folder.join("data.new");
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished).map_err(Error::file(&unfinished))?;
        }
        let mut command = self.command("initdb");
        command
            .args(["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--data-checksums"])
            .arg(format!("--username={SUPERUSER}"))
            .arg(format!("--pwfile={}", password_file(&self.folder).display()))
            .arg(format!("--pgdata={}", unfinished.display()));
        if !durable {
            command.arg("--no-sync");
        }
        let output = command.output().await.map_err(|source| Error::Spawn { program: "initdb".to_owned(), source })?;
        if !output.status.success() {
            let output = [output.stdout, output.stderr].concat();
            return Err(Error::Step { step: "initdb", output: String::from_utf8_lossy(&output).into_owned() });
        }
        fs::rename(&unfinished, self.data()).map_err(Error::file(unfinished))
    }

    async fn start_once(&self) -> Result<Process, Error> {
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data());
        let port = self.port.to_string();
        let own = [("listen_addresses", "127.0.0.1"), ("port", &port), ("unix_socket_directories", "")];
        let told = self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in [("log_checkpoints", "off")].into_iter().chain(told).chain(own) {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        // An interrupt ends it without waiting for its clients; a quit ends it at once, to recover at the next start.
        let signals = Signals { stop: Signal::SIGINT, abort: Signal::SIGQUIT };
        let mut process = Process::spawn(NAME, command, signals, &self.folder.join("log"))?;
        let deadline = Instant::now() + READY_TIME;
        while !says_ready(&self.pid_file(), process.pid()) {
            if let Some(status) = process.ended() {
                return Err(Error::Ended { name: NAME, status, log: process.log_tail() });
            }
            if Instant::now() > deadline {
                return Err(Error::NotReady { name: NAME, waited: READY_TIME, log: process.log_tail() });
            }
            sleep(POLL).await;
        }
        Ok(process)
    }
}

impl Server for PostgresServer {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn start(&self) -> Result<Process, Error> {
        folder::wait_for_remains(&self.pid_file(), NAME).await?;
        let crashed = self.pid_file().exists();
        let deadline = Instant::now() + CRASH_REMAINS_TIME;
        loop {
            match self.start_once().await {
                Err(Error::Ended { .. }) if crashed && Instant::now() < deadline => sleep(POLL * 10).await,
                result => return result,
            }
        }
    }
}

/// The server's own word: the first line of its file is its process id, the eighth its state.
fn says_ready(pid_file: &Path, pid: u32) -> bool {
    let Ok(text) = fs::read_to_string(pid_file) else { return false };
    let mut lines = text.lines().map(str::trim);
    lines.next() == Some(pid.to_string().as_str()) && lines.nth(6) == Some("ready")
}

/// The folder, links followed, made and given to the account, and where the account can reach it.
fn reachable(wanted: &Path, account: Option<&Account>) -> Result<PathBuf, Error> {
    let Some(account) = account else {
        folder::make(wanted, 0o700)?;
        return fs::canonicalize(wanted).map_err(Error::file(wanted));
    };
    if !wanted.exists() {
        let parent = wanted.parent().unwrap_or(Path::new("."));
        // Open to search, not to read: what is private in there has modes of its own.
        folder::make(parent, 0o711)?;
        if !account.can_enter(parent).map_err(Error::file(parent))? {
            let place = Path::new(REACHABLE).join(format!("{:016x}", rand::random::<u64>()));
            folder::make(Path::new(REACHABLE), 0o711)?;
            folder::make(&place, 0o700)?;
            symlink(&place, wanted).map_err(Error::file(wanted))?;
            tracing::info!(folder = %place.display(), "Postgres's user cannot reach the data folder; its data goes here");
        }
    }
    folder::make(wanted, 0o700)?;
    let folder = fs::canonicalize(wanted).map_err(Error::file(wanted))?;
    account.own(&folder).map_err(Error::file(&folder))?;
    Ok(folder)
}

fn password_file(folder: &Path) -> PathBuf {
    folder.join("password")
}

/// The superuser's password: the one that is there, else a new one.
fn password(folder: &Path, account: Option<&Account>) -> Result<SecretString, Error> {
    let path = password_file(folder);
    if let Some(text) = fs::read_to_string(&path).ok().filter(|text| !text.is_empty()) {
        return Ok(text.into());
    }
    let bytes: [u8; 32] = rand::random();
    let password: SecretString = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into();
    folder::write_private(&path, password.expose_secret())?;
    if let Some(account) = account {
        account.own(&path).map_err(Error::file(&path))?;
    }
    Ok(password)
}
