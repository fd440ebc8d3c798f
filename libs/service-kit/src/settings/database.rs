//! The database.

use clap::Args;

use super::network::{Address, AddressError};

/// How to reach the database.
#[derive(Args, Clone, Debug)]
pub struct DatabaseSettings {
    /// Address of Postgres: postgresql://HOST:PORT/DATABASE, for TLS with ?sslmode=require&sslrootcert=FILE, the
    /// certificate authority to verify it against, in PEM. User and password are the role's own, from the key file
    #[arg(
        long,
        env = "ROADSTEAD_DATABASE_URL",
        value_name = "URL",
        default_value = "postgresql://127.0.0.1:5432/roadstead"
    )]
    database_url: String,
    /// Most connections that this process holds at a time
    #[arg(long, env = "ROADSTEAD_DATABASE_CONNECTIONS", value_name = "COUNT", default_value_t = 16,
        value_parser = clap::value_parser!(u16).range(1..=512))]
    database_connections: u16,
    /// Do without TLS to a Postgres that is not on this machine. Only for a network that nobody else can use, such as a
    /// compose network of the deployment's own
    #[arg(long, env = "ROADSTEAD_DATABASE_PLAINTEXT")]
    database_plaintext: bool,
}

impl DatabaseSettings {
    /// The address.
    ///
    /// # Errors
    /// If it holds a password, or would be spoken to in plaintext over a network.
    pub fn url(&self) -> Result<&str, AddressError> {
        let url = self.database_url.as_str();
        // With `require` the client speaks TLS or not at all; said once, so that nothing takes it back.
        let encrypted = url.contains("sslmode=require") && url.matches("sslmode").count() == 1;
        let allow = ("--database-plaintext", self.database_plaintext);
        Address { flag: "--database-url", url, encrypted, allow }.permitted()
    }

    /// Most connections at a time.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.database_connections.into()
    }
}
