//! A test's own Postgres, for tests that stop it.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use nix::sys::signal::Signal;
use roadstead_embedded::{PostgresServer, PostgresSettings, Process, keep::Server, postgres::SUPERUSER};
use tempfile::TempDir;

use crate::{
    Login, Run, Victim,
    database::{self, OWNER},
    programs,
    sql::Session,
};

const STOP_TIME: Duration = Duration::from_secs(20);
const DATABASE: &str = "roadstead";

/// A Postgres of one test's own, with one empty database. It takes a second or two to start; a test that only needs a
/// database takes a [`crate::Database`].
#[derive(Debug)]
pub struct Postgres {
    // Declared in this order so that the process ends before its folder goes.
    process: Option<Process>,
    server: PostgresServer,
    folder: TempDir,
}

impl Postgres {
    /// Starts one.
    pub async fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("roadstead-postgres-").tempdir().unwrap();
        // Postgres may run as another user and has to reach its own folder in there.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let settings = PostgresSettings {
            bin: programs::servers().postgres_bin,
            folder: folder.path().join("postgres"),
            port: None,
            settings: vec![("max_connections".to_owned(), "200".to_owned())],
            durable: false,
        };
        let server = PostgresServer::prepare(&settings).await.unwrap_or_else(|error| panic!("{error}"));
        let mut postgres = Self { process: None, server, folder };
        postgres.resume().await;
        let superuser = postgres.login(SUPERUSER, "postgres");
        database::make_owner(&superuser, Run::get().role_password()).await;
        Session::open(&superuser).await.run(&format!("create database {DATABASE} owner {OWNER}")).await;
        postgres
    }

    /// How the superuser logs in to the database.
    #[must_use]
    pub fn superuser(&self) -> Login {
        self.login(SUPERUSER, DATABASE)
    }

    /// How the owner logs in to the database.
    #[must_use]
    pub fn owner(&self) -> Login {
        Login { password: Run::get().role_password().clone(), ..self.login(OWNER, DATABASE) }
    }

    /// Stops it in order, ending all sessions. Nothing happens if it is down.
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

    /// Keeps a copy of all that it holds, in place of an earlier one. It is restarted for that.
    pub async fn save(&mut self) {
        self.stop().await;
        self.copy("postgres", "saved");
        self.resume().await;
    }

    /// Kills it and starts it on the copy: an older database under whoever uses it.
    ///
    /// # Panics
    /// Nothing was saved.
    pub async fn restore(&mut self) {
        self.kill().await;
        self.copy("saved", "postgres");
        self.resume().await;
    }

    fn copy(&self, from: &str, to: &str) {
        let [from, to] = [from, to].map(|name| self.folder.path().join(name));
        if to.exists() {
            fs::remove_dir_all(&to).unwrap();
        }
        // With owners: it may run as another user.
        let copied = std::process::Command::new("cp").arg("-a").args([&from, &to]).status().unwrap();
        assert!(copied.success(), "{} cannot be copied", from.display());
    }

    /// Its first process, to freeze and thaw: then no new session begins.
    ///
    /// # Panics
    /// It is down.
    #[must_use]
    pub fn victim(&self) -> Victim {
        Victim::new(self.process.as_ref().expect("Postgres is up").pid())
    }

    fn login(&self, user: &str, database: &str) -> Login {
        Login {
            host: "127.0.0.1".to_owned(),
            port: self.server.port(),
            user: user.to_owned(),
            password: self.server.superuser_password().clone(),
            database: database.to_owned(),
        }
    }
}
