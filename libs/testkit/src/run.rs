//! A test run and the Postgres that all its processes share.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{ChildStdin, Command, Stdio},
    sync::{OnceLock, mpsc},
    time::Duration,
};

use roadstead_embedded::{PostgresServer, PostgresSettings, Process, keep::Server, postgres::SUPERUSER};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::{Login, database, programs};

/// The environment variable that names the folder of the run that a test belongs to.
pub const VARIABLE: &str = "ROADSTEAD_TEST_RUN";

const FACTS: &str = "run.json";
const STOP_TIME: Duration = Duration::from_secs(20);

/// The shared part of a test run.
///
/// `./dev test` starts one and hands it to every test process by [`VARIABLE`]. A process that has none (a bare
/// `cargo test -p …`) starts its own at first use; that one ends with the process.
#[derive(Debug)]
pub struct Run {
    folder: PathBuf,
    facts: Facts,
}

#[derive(Debug, Serialize, Deserialize)]
struct Facts {
    postgres_port: u16,
    superuser_password: Password,
    role_password: Password,
}

/// A password that is written to the run's private file and shown nowhere else.
#[derive(Debug, Clone)]
pub(crate) struct Password(pub(crate) SecretString);

impl Serialize for Password {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.expose_secret())
    }
}

impl<'de> Deserialize<'de> for Password {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(text.into()))
    }
}

impl Run {
    /// The run of this process.
    pub fn get() -> &'static Self {
        static RUN: OnceLock<Run> = OnceLock::new();
        RUN.get_or_init(|| match env::var_os(VARIABLE) {
            Some(folder) => Self::join(PathBuf::from(folder)),
            None => start_private(),
        })
    }

    fn join(folder: PathBuf) -> Self {
        let file = folder.join(FACTS);
        let text =
            fs::read(&file).unwrap_or_else(|error| panic!("{VARIABLE} names no test run: {}: {error}", file.display()));
        let facts = serde_json::from_slice(&text).expect("the run's file is ours");
        Self { folder, facts }
    }

    /// A folder for what the run's processes share.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How to log in as Postgres's superuser.
    #[must_use]
    pub fn superuser(&self, database: &str) -> Login {
        self.login(SUPERUSER, &self.facts.superuser_password.0, database)
    }

    /// How to log in as the owner of all test databases, the role that migrates.
    #[must_use]
    pub fn owner(&self, database: &str) -> Login {
        self.login(database::OWNER, &self.facts.role_password.0, database)
    }

    /// The password of every role that Roadstead logs in as: roles belong to the cluster, which all tests of the run
    /// share, so they must agree.
    #[must_use]
    pub fn role_password(&self) -> &SecretString {
        &self.facts.role_password.0
    }

    /// How to log in as some role of the cluster.
    #[must_use]
    pub fn login(&self, user: &str, password: &SecretString, database: &str) -> Login {
        Login {
            host: "127.0.0.1".to_owned(),
            port: self.facts.postgres_port,
            user: user.to_owned(),
            password: password.clone(),
            database: database.to_owned(),
        }
    }
}

/// A run that this process has started and holds.
#[derive(Debug)]
pub struct Started {
    folder: TempDir,
    postgres: Process,
    server: PostgresServer,
}

impl Started {
    /// Starts Postgres in a temporary folder and writes down how to reach it.
    pub async fn start() -> Self {
        // Postgres may run as another user and has to reach its own folder in there.
        let folder = tempfile::Builder::new().prefix("roadstead-test-").tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let settings = PostgresSettings {
            bin: programs::servers().postgres_bin,
            folder: folder.path().join("postgres"),
            port: None,
            settings: [("max_connections", "400"), ("shared_buffers", "64MB"), ("max_wal_size", "256MB")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
            durable: false,
        };
        let server = PostgresServer::prepare(&settings).await.unwrap_or_else(|error| panic!("{error}"));
        let postgres = server.start().await.unwrap_or_else(|error| panic!("{error}"));
        let started = Self { folder, postgres, server };
        started.write_down().await;
        started
    }

    async fn write_down(&self) {
        let role_password = Password(uuid::Uuid::new_v4().simple().to_string().into());
        let facts = Facts {
            postgres_port: self.server.port(),
            superuser_password: Password(self.server.superuser_password().clone()),
            role_password,
        };
        let run = Run { folder: self.folder.path().to_owned(), facts };
        database::make_owner(&run.superuser("postgres"), &run.facts.role_password.0).await;
        let file = self.folder.path().join(FACTS);
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&file, serde_json::to_vec(&run.facts).unwrap()).unwrap();
    }

    /// The folder to name in [`VARIABLE`].
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Stops Postgres and removes the folder.
    pub async fn stop(self) {
        self.postgres.stop(STOP_TIME).await.unwrap();
        drop(self.server);
        self.folder.close().unwrap();
    }
}

/// Starts a run for this process alone. It is held by a thread of its own, since a test's runtime ends before the
/// process does.
fn start_private() -> Run {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let started = Started::start().await;
            // Its end is what the broom waits for.
            let _input = sweep_at_end(started.folder(), started.postgres.pid());
            sender.send(started.folder().to_owned()).unwrap();
            std::future::pending::<()>().await;
        });
    });
    Run::join(receiver.recv().expect("the test run's Postgres starts"))
}

/// Removes the folder once this process and then Postgres, which its leash stops, have ended: nothing in a process
/// runs after its last test.
#[allow(clippy::zombie_processes, reason = "it ends after this process")]
fn sweep_at_end(folder: &Path, postgres: u32) -> ChildStdin {
    const SCRIPT: &str = r#"read -r _; tries=300
        while kill -0 "$2" 2>/dev/null && [ $tries -gt 0 ]; do sleep 0.1; tries=$((tries - 1)); done
        rm -rf -- "$1""#;
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SCRIPT, "broom"]).arg(folder).arg(postgres.to_string());
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap().stdin.take().unwrap()
}
