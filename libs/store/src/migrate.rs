//! Migrations and roles, run by the owner of the database. Forward only; a program meets a schema that is newer than
//! itself, so each migration adds before a later one takes away.

use std::time::Duration;

use roadstead_proto::role::Role;
use secrecy::{ExposeSecret, SecretString};
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::database::{SettingsError, owner_config};

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// Name of the advisory lock under which migrations run, one process at a time.
const LOCK: i64 = 0x726f_6164_7374_6561;
/// Pause before the lock is asked for again.
const TURN_PAUSE: Duration = Duration::from_millis(100);

/// Roles are shared by all databases of a server: another one's migration may be at the same row.
const ROLE_ATTEMPTS: u32 = 20;

/// Passwords of the roles that log in.
#[derive(Clone, Debug)]
pub struct RolePasswords {
    pub admission: SecretString,
    pub config_snapshot: SecretString,
    pub watch: SecretString,
}

/// Why the schema could not be brought up to date. What was applied before stays applied.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("Postgres refused or was lost while {doing}")]
    Postgres { doing: &'static str, source: tokio_postgres::Error },
    #[error("a migration failed")]
    Migration(#[from] refinery::Error),
}

/// Name of the role's user in Postgres, if it has one.
#[must_use]
pub fn user(role: Role) -> Option<&'static str> {
    match role {
        Role::Admission => Some("roadstead_admission"),
        Role::ConfigSnapshot => Some("roadstead_config_snapshot"),
        Role::Watch => Some("roadstead_watch"),
        Role::Edge | Role::SupervisorBridge | Role::Operator => None,
    }
}

/// Brings the schema up to date and gives the roles their passwords. Running it again changes nothing but the
/// passwords. `owner_url` names a user that may create roles, and its password.
///
/// # Errors
/// See [`MigrateError`].
pub async fn migrate(owner_url: &SecretString, passwords: &RolePasswords) -> Result<(), MigrateError> {
    let doing = |doing| move |source| MigrateError::Postgres { doing, source };
    let (turn, holding) = connect(owner_url).await?;
    take_turn(&turn).await.map_err(doing("waiting for other migrations"))?;
    let (mut client, connection) = connect(owner_url).await?;
    client.batch_execute("CREATE SCHEMA IF NOT EXISTS roadstead").await.map_err(doing("making the schema"))?;
    let RolePasswords { admission, config_snapshot, watch } = passwords;
    for (role, password) in
        [(Role::Admission, admission), (Role::ConfigSnapshot, config_snapshot), (Role::Watch, watch)]
    {
        if let Some(user) = user(role) {
            ensure_role(&client, user, password).await.map_err(doing("making a role"))?;
        }
    }
    embedded::migrations::runner().run_async(&mut client).await?;
    drop(client);
    drop(connection.await);
    // Closes the connection, and with it goes the lock.
    drop(turn);
    drop(holding.await);
    Ok(())
}

/// Takes the lock under which migrations run, in a transaction that stays open and does nothing else: it ends with the
/// connection, and a pooler that lends a session for each transaction cannot take it apart from its holder. It is asked
/// for again and again, so that those who wait keep no session that the holder may need.
async fn take_turn(client: &Client) -> Result<(), tokio_postgres::Error> {
    let ask = format!("SELECT pg_try_advisory_xact_lock({LOCK})");
    loop {
        client.batch_execute("BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0").await?;
        for message in client.simple_query(&ask).await? {
            if let SimpleQueryMessage::Row(row) = message
                && row.get(0) == Some("t")
            {
                return Ok(());
            }
        }
        client.batch_execute("ROLLBACK").await?;
        tokio::time::sleep(TURN_PAUSE).await;
    }
}

/// Makes the database of that name if it is not there. `server_url` names a user that may, and its password.
///
/// # Errors
/// See [`MigrateError`].
pub async fn ensure_database(server_url: &SecretString, name: &str) -> Result<(), MigrateError> {
    let doing = |doing| move |source| MigrateError::Postgres { doing, source };
    let (client, connection) = connect(server_url).await?;
    let there = client.query_opt("SELECT FROM pg_database WHERE datname = $1", &[&name]).await;
    if there.map_err(doing("looking for the database"))?.is_none() {
        let create = format!("CREATE DATABASE {}", postgres_protocol::escape::escape_identifier(name));
        client.batch_execute(&create).await.map_err(doing("making the database"))?;
    }
    drop(client);
    drop(connection.await);
    Ok(())
}

/// The epoch before and after it was raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raised {
    pub before: u64,
    pub now: u64,
}

/// Raises the epoch: after a restore or a failover of Postgres, what caches show of its former life is older than
/// anything they will see. It follows the clock, so that it rises also from a value that was raised before in a life that
/// another restore has undone.
///
/// # Errors
/// See [`MigrateError`].
pub async fn raise_epoch(owner_url: &SecretString) -> Result<Raised, MigrateError> {
    let (client, connection) = connect(owner_url).await?;
    let row = client
        .query_one(crate::table::epoch::RAISE, &[])
        .await
        .map_err(|source| MigrateError::Postgres { doing: "raising the epoch", source })?;
    drop(client);
    drop(connection.await);
    let value = |column: usize| row.get::<_, i64>(column).cast_unsigned();
    Ok(Raised { before: value(0), now: value(1) })
}

async fn connect(owner_url: &SecretString) -> Result<(Client, JoinHandle<()>), MigrateError> {
    let (config, tls) = owner_config(owner_url.expose_secret())?;
    let (client, connection) = config
        .connect(tls)
        .await
        .map_err(|source| MigrateError::Postgres { doing: "connecting as the owner", source })?;
    let connection = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::warn!(%error, "the owner's connection ended");
        }
    });
    Ok((client, connection))
}

/// The password goes over as the verifier that Postgres keeps: no log of statements can show it.
async fn ensure_role(client: &Client, user: &str, password: &SecretString) -> Result<(), tokio_postgres::Error> {
    let verifier = postgres_protocol::password::scram_sha_256(password.expose_secret().as_bytes());
    let create = format!(
        "DO $$ BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{user}') THEN CREATE ROLE {user}; END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
        END $$;
        ALTER ROLE {user} LOGIN PASSWORD '{verifier}'"
    );
    let mut attempt = 1;
    loop {
        match client.batch_execute(&create).await {
            // "tuple concurrently updated"
            Err(error) if error.code() == Some(&SqlState::INTERNAL_ERROR) && attempt < ROLE_ATTEMPTS => {
                tokio::time::sleep(Duration::from_millis(20)).await;
                attempt += 1;
            }
            result => return result,
        }
    }
}
