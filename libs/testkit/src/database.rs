//! A database per test, copied from a migrated template.

use std::{fs::File, future::Future, process::Stdio, time::Duration};

use secrecy::{ExposeSecret, SecretString};

use crate::{Run, eventually, programs, sql::Session};

/// The role that owns every test database and migrates it.
pub const OWNER: &str = "roadstead";

/// How to log in to Postgres.
#[derive(Debug, Clone)]
pub struct Login {
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Role.
    pub user: String,
    /// Its password.
    pub password: SecretString,
    /// Database.
    pub database: String,
}

impl Login {
    /// `postgres://host:port/database`, without user and password.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://{}:{}/{}", self.host, self.port, self.database)
    }

    /// `postgres://user:password@host:port/database`.
    #[must_use]
    pub fn url_with_password(&self) -> String {
        let Self { host, port, user, password, database } = self;
        format!("postgres://{user}:{}@{host}:{port}/{database}", password.expose_secret())
    }
}

/// A test's own database. Dropped, it is removed, whoever is still connected.
#[derive(Debug)]
pub struct Database {
    name: String,
}

impl Database {
    /// A new, empty database that belongs to [`OWNER`].
    pub async fn empty() -> Self {
        Self::create("template1").await
    }

    /// A new database, copied from the template called `template`. The first of the run to ask for that name makes
    /// the template: `migrate` gets the owner's login to an empty database and fills it. It gives every role the
    /// password [`Run::role_password`].
    pub async fn from_template<F, M>(template: &str, migrate: F) -> Self
    where
        F: FnOnce(Login) -> M,
        M: Future<Output = ()>,
    {
        ensure_template(template, migrate).await;
        Self::create(template).await
    }

    async fn create(template: &str) -> Self {
        let name = format!("test_{}", uuid::Uuid::new_v4().simple());
        let sql = format!("create database {name} template {template} owner {OWNER}");
        // Copying needs that nobody is connected to the template at that moment, not even autovacuum.
        eventually(Duration::from_secs(20), "the template can be copied", async || {
            Session::open(&Run::get().superuser("postgres")).await.try_run(&sql).await
        })
        .await;
        Self { name }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How its owner logs in.
    #[must_use]
    pub fn owner(&self) -> Login {
        Run::get().owner(&self.name)
    }

    /// How the superuser logs in to it.
    #[must_use]
    pub fn superuser(&self) -> Login {
        Run::get().superuser(&self.name)
    }

    /// A side session of the superuser.
    pub async fn session(&self) -> Session {
        Session::open(&self.superuser()).await
    }

    /// Ends the sessions of `user` in this database (`pg_terminate_backend`); how many there were.
    pub async fn end_sessions_of(&self, user: &str) -> usize {
        let sql = format!(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = '{}' and usename = '{user}'",
            self.name
        );
        self.session().await.run(&sql).await.len()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let login = Run::get().superuser("postgres");
        // Not waited for: a test is over when its asserts are.
        let removal = std::process::Command::new(programs::servers().postgres_bin.join("psql"))
            .args(["--no-psqlrc", "--quiet", "--host", &login.host, "--port", &login.port.to_string()])
            .args(["--username", &login.user, "--dbname", &login.database])
            .args(["--command", &format!("drop database if exists {} with (force)", self.name)])
            .env("PGPASSWORD", login.password.expose_secret())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        drop(removal);
    }
}

/// Makes [`OWNER`] with the rights an owner has in a real installation: its databases and the making of roles.
pub(crate) async fn make_owner(superuser: &Login, password: &SecretString) {
    let sql = format!("create role {OWNER} login createrole password '{}'", password.expose_secret());
    Session::open(superuser).await.run(&sql).await;
}

async fn ensure_template<F, M>(name: &str, migrate: F)
where
    F: FnOnce(Login) -> M,
    M: Future<Output = ()>,
{
    let run = Run::get();
    let _lock = lock(run.folder().join(format!("template-{name}.lock"))).await;
    let mut session = Session::open(&run.superuser("postgres")).await;
    if session.value(&format!("select count(*) from pg_database where datname = '{name}'")).await != "0" {
        return;
    }
    let unfinished = format!("{name}_unfinished");
    session.run(&format!("drop database if exists {unfinished} with (force)")).await;
    session.run(&format!("create database {unfinished} owner {OWNER}")).await;
    migrate(run.owner(&unfinished)).await;
    // Connections of the migration close in their own time.
    let sql = format!("alter database {unfinished} rename to {name}");
    eventually(Duration::from_secs(20), "the migration's connections are closed", async || {
        Session::open(&run.superuser("postgres")).await.try_run(&sql).await
    })
    .await;
}

/// Holds a lock among the run's processes until the file is dropped.
async fn lock(path: std::path::PathBuf) -> File {
    tokio::task::spawn_blocking(move || {
        let file = File::options().create(true).truncate(false).write(true).open(path).unwrap();
        file.lock().unwrap();
        file
    })
    .await
    .unwrap()
}
