//! `roadstead migrate`: brings the database's schema up to date.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use roadstead_proto::role::Role;
use roadstead_service_kit::keyring::OwnerKeys;
use roadstead_service_kit::settings::DatabaseSettings;
use roadstead_store::migrate::{self, RolePasswords};
use secrecy::{ExposeSecret as _, SecretString};

/// Name of the database, and in the compose file of the user that owns it.
pub(crate) const DATABASE: &str = "roadstead";

/// Bring the database's schema up to date and give the roles their passwords, as the user `roadstead`. Safe to repeat
#[derive(Args, Debug)]
pub(crate) struct Command {
    #[command(flatten)]
    owner: Owner,
}

/// How the owner reaches the database.
#[derive(Args, Debug)]
pub(super) struct Owner {
    #[command(flatten)]
    database: DatabaseSettings,
    /// The owner's key file, which `roadstead keys init` writes
    #[arg(long, env = "ROADSTEAD_OWNER_KEYS", value_name = "FILE")]
    owner_keys: PathBuf,
}

impl Command {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let keys = self.owner.keys()?;
        migrate(self.owner.url(&keys)?, &keys).await
    }
}

impl Owner {
    pub(super) fn keys(&self) -> anyhow::Result<OwnerKeys> {
        Ok(OwnerKeys::load(&self.owner_keys)?)
    }

    pub(super) fn url(&self, keys: &OwnerKeys) -> anyhow::Result<SecretString> {
        let (_, rest) = self.database.url()?.split_once("://").context("--database-url must be a URL")?;
        let password = keys.owner_password().expose_secret();
        Ok(SecretString::from(format!("postgres://{DATABASE}:{password}@{rest}")))
    }
}

/// As the superuser of an embedded server, whose database is made if it is not there.
pub(crate) async fn embedded(
    port: u16,
    superuser: &str,
    password: &SecretString,
    keys: &OwnerKeys,
) -> anyhow::Result<()> {
    let server = format!("postgres://{superuser}:{}@127.0.0.1:{port}", password.expose_secret());
    migrate::ensure_database(&SecretString::from(format!("{server}/postgres")), DATABASE).await?;
    migrate(SecretString::from(format!("{server}/{DATABASE}")), keys).await
}

async fn migrate(owner: SecretString, keys: &OwnerKeys) -> anyhow::Result<()> {
    let password = |role| keys.role_password(role).cloned().with_context(|| format!("no password for {role}"));
    let passwords = RolePasswords {
        admission: password(Role::Admission)?,
        config_snapshot: password(Role::ConfigSnapshot)?,
        watch: password(Role::Watch)?,
    };
    Ok(migrate::migrate(&owner, &passwords).await?)
}
