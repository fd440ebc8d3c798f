//! The broker.

use std::path::{Path, PathBuf};

use clap::Args;

use super::network::{Address, AddressError};

/// How to reach the broker.
#[derive(Args, Clone, Debug)]
pub struct BrokerSettings {
    /// Address of the NATS servers, several with commas between them: nats://HOST:PORT, or tls://HOST:PORT. The user is
    /// in the key file
    #[arg(long, env = "ROADSTEAD_NATS_URL", value_name = "URL", default_value = "nats://127.0.0.1:4222")]
    nats_url: String,
    /// Certificate authority of the NATS servers (PEM), if no public one; naming it demands TLS
    #[arg(long, env = "ROADSTEAD_NATS_CA", value_name = "FILE")]
    nats_ca: Option<PathBuf>,
    /// Do without TLS to NATS servers that are not on this machine. Only for a network that nobody else can use, such
    /// as a compose network of the deployment's own
    #[arg(long, env = "ROADSTEAD_NATS_PLAINTEXT")]
    nats_plaintext: bool,
}

impl BrokerSettings {
    /// The address.
    ///
    /// # Errors
    /// If it holds a password, or would be spoken to in plaintext over a network.
    pub fn url(&self) -> Result<&str, AddressError> {
        let encrypted = self.nats_ca.is_some() || self.nats_url.split(',').all(|url| url.trim().starts_with("tls://"));
        let allow = ("--nats-plaintext", self.nats_plaintext);
        Address { flag: "--nats-url", url: &self.nats_url, encrypted, allow }.permitted()
    }

    /// The certificate authority, if one is named.
    #[must_use]
    pub fn ca(&self) -> Option<&Path> {
        self.nats_ca.as_deref()
    }
}
