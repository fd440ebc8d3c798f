//! Settings of the role.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use roadstead_service_kit::settings::{AdminSettings, BrokerSettings, KeysSettings};

/// The supervisors' door: holds their sessions, sends them the configuration and environment of their sandboxes, and
/// passes on what they report. Any number of replicas; a supervisor may connect to any.
#[derive(Args, Clone, Debug)]
pub struct Config {
    #[command(flatten)]
    pub broker: BrokerSettings,
    #[command(flatten)]
    pub keys: KeysSettings,
    #[command(flatten)]
    pub admin: AdminSettings,
    /// Address for supervisors
    #[arg(long, env = "ROADSTEAD_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:17671")]
    pub listen: SocketAddr,
    /// Certificate chain of the listener (PEM); without it the port speaks plain text
    #[arg(long, env = "ROADSTEAD_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of that certificate (PEM)
    #[arg(long, env = "ROADSTEAD_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Sessions at a time, those that end included until their end is reported; more are refused for the moment
    #[arg(long, env = "ROADSTEAD_MAX_SESSIONS", default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_sessions: u32,
    /// Sessions that are opened at the same time; more wait
    #[arg(long, env = "ROADSTEAD_OPENING_SESSIONS", default_value_t = 64,
        value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub opening_sessions: u16,
    /// Seconds between heartbeats, of both sides
    #[arg(long, env = "ROADSTEAD_HEARTBEAT_SECONDS", default_value_t = 15,
        value_parser = clap::value_parser!(u64).range(1..=300))]
    pub heartbeat_seconds: u64,
    /// Seconds after which the entries of a session are read again, in case a message was lost
    #[arg(long, env = "ROADSTEAD_REREAD_SECONDS", default_value_t = 120,
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub reread_seconds: u64,
}

/// The times of a session.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Between heartbeats, of both sides.
    pub heartbeat: Duration,
    /// After which entries are read again.
    pub reread: Duration,
}

impl Config {
    /// The times of its sessions.
    #[must_use]
    pub const fn times(&self) -> Times {
        Times {
            heartbeat: Duration::from_secs(self.heartbeat_seconds),
            reread: Duration::from_secs(self.reread_seconds),
        }
    }
}
