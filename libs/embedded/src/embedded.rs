//! Both servers in one data folder, kept running.

use std::{io, path::PathBuf, time::Duration};

use crate::{Binaries, Error, Kept, NatsServer, NatsSettings, PostgresServer, PostgresSettings, RestartPolicy};
use secrecy::SecretString;

/// How often a start with chosen ports is tried again when somebody took a port in between.
const PORT_TRIES: usize = 3;

/// What the pair is started with.
#[derive(Debug, Clone)]
pub struct EmbeddedSettings {
    /// The programs.
    pub binaries: Binaries,
    /// The data folder; the servers use `nats` and `postgres` in it.
    pub folder: PathBuf,
    /// nats-server's loopback port, or `None` for a free one.
    pub nats_port: Option<u16>,
    /// nats-server's configuration text: users and limits.
    pub nats_config: String,
    /// Postgres's loopback port, or `None` for a free one.
    pub postgres_port: Option<u16>,
    /// Postgres's settings (`name`, `value`).
    pub postgres_settings: Vec<(String, String)>,
    /// `false` gives up Postgres's safety against power loss for speed; for tests.
    pub durable: bool,
}

/// A running nats-server and a running Postgres. Dropped, both are ended at once.
#[derive(Debug)]
pub struct Embedded {
    nats: Kept,
    postgres: Kept,
    nats_url: String,
    postgres_port: u16,
    superuser_password: SecretString,
}

impl Embedded {
    /// Starts both, at the same time, and returns when both answer.
    ///
    /// # Errors
    /// One cannot be prepared or started; the other is ended then.
    pub async fn start(settings: &EmbeddedSettings) -> Result<Self, Error> {
        let ((nats, nats_url), (postgres, postgres_port, superuser_password)) =
            tokio::try_join!(start_nats(settings), start_postgres(settings))?;
        Ok(Self { nats, postgres, nats_url, postgres_port, superuser_password })
    }

    /// The broker's address.
    #[must_use]
    pub fn nats_url(&self) -> &str {
        &self.nats_url
    }

    /// Postgres's loopback port.
    #[must_use]
    pub fn postgres_port(&self) -> u16 {
        self.postgres_port
    }

    /// The password of Postgres's superuser ([`crate::postgres::SUPERUSER`]).
    #[must_use]
    pub fn superuser_password(&self) -> &SecretString {
        &self.superuser_password
    }

    /// nats-server's process id, `None` while it is down.
    #[must_use]
    pub fn nats_pid(&self) -> Option<u32> {
        self.nats.pid()
    }

    /// Postgres's process id, `None` while it is down.
    #[must_use]
    pub fn postgres_pid(&self) -> Option<u32> {
        self.postgres.pid()
    }

    /// Waits until one of them died too often to be started again; its name. Cancelling the wait changes nothing.
    pub async fn given_up(&mut self) -> &'static str {
        let (nats, postgres) = (self.nats.name(), self.postgres.name());
        tokio::select! {
            () = self.nats.given_up() => nats,
            () = self.postgres.given_up() => postgres,
        }
    }

    /// Stops the broker, then Postgres, each killed after `deadline`.
    ///
    /// # Errors
    /// The system does not let one be stopped; the other is stopped all the same.
    pub async fn stop(self, deadline: Duration) -> io::Result<()> {
        let nats = self.nats.stop(deadline).await;
        let postgres = self.postgres.stop(deadline).await;
        nats.and(postgres)
    }
}

async fn start_nats(settings: &EmbeddedSettings) -> Result<(Kept, String), Error> {
    let wanted = NatsSettings {
        program: settings.binaries.nats_server.clone(),
        folder: settings.folder.join("nats"),
        port: settings.nats_port,
        config: settings.nats_config.clone(),
    };
    for _ in 1..tries(wanted.port) {
        match launch_nats(&wanted).await {
            Err(Error::Ended { .. }) => {}
            result => return result,
        }
    }
    launch_nats(&wanted).await
}

async fn launch_nats(settings: &NatsSettings) -> Result<(Kept, String), Error> {
    let server = NatsServer::prepare(settings)?;
    let url = server.url();
    Ok((Kept::start(server, RestartPolicy::default()).await?, url))
}

async fn start_postgres(settings: &EmbeddedSettings) -> Result<(Kept, u16, SecretString), Error> {
    let wanted = PostgresSettings {
        bin: settings.binaries.postgres_bin.clone(),
        folder: settings.folder.join("postgres"),
        port: settings.postgres_port,
        settings: settings.postgres_settings.clone(),
        durable: settings.durable,
    };
    for _ in 1..tries(wanted.port) {
        match launch_postgres(&wanted).await {
            Err(Error::Ended { .. }) => {}
            result => return result,
        }
    }
    launch_postgres(&wanted).await
}

async fn launch_postgres(settings: &PostgresSettings) -> Result<(Kept, u16, SecretString), Error> {
    let server = PostgresServer::prepare(settings).await?;
    let (port, password) = (server.port(), server.superuser_password().clone());
    Ok((Kept::start(server, RestartPolicy::default()).await?, port, password))
}

fn tries(fixed_port: Option<u16>) -> usize {
    if fixed_port.is_some() { 1 } else { PORT_TRIES }
}
