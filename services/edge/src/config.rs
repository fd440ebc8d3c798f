//! Settings of the role.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use roadstead_service_kit::settings::{AdminSettings, BrokerSettings, KeysSettings};

/// The clients' door: speaks the public API, recognises users, hands mutations to admission and reads to the reading
/// roles, and shows watchers what changes. Any number of replicas, behind any balancer.
#[derive(Args, Clone, Debug)]
pub struct Config {
    #[command(flatten)]
    pub broker: BrokerSettings,
    #[command(flatten)]
    pub keys: KeysSettings,
    #[command(flatten)]
    pub admin: AdminSettings,
    /// Address of the public API: gRPC, and /healthz, /readyz and /health over plain HTTP
    #[arg(long = "listen", env = "ROADSTEAD_EDGE_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:17670")]
    pub listen: SocketAddr,
    /// Certificate chain of the public API (PEM). Without it the port speaks plain text
    #[arg(long, env = "ROADSTEAD_EDGE_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of that certificate (PEM)
    #[arg(long, env = "ROADSTEAD_EDGE_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Bearer tokens of users (JSON, mode 0600): {"tokens": [{"token", "subject", "provider", "issuer", "display_name",
    /// "roles", "scopes", "expires"}]}. The role openshell-admin administrates the platform. The file is read again when it
    /// changes
    #[arg(long, env = "ROADSTEAD_EDGE_TOKENS", value_name = "FILE")]
    pub tokens: Option<PathBuf>,
    /// Whether a caller without a credential is taken for the local developer, who administrates the platform. By
    /// default so on a loopback address without a token file, and never else
    #[arg(long, env = "ROADSTEAD_EDGE_ALLOW_UNAUTHENTICATED_USERS", value_name = "WHERE", num_args = 0..=1,
        default_missing_value = "loopback")]
    pub allow_unauthenticated_users: Option<Where>,
    /// Where supervisors connect, told to those that come here instead
    #[arg(long, env = "ROADSTEAD_EDGE_BRIDGE_ADDRESS", value_name = "ADDRESS")]
    pub bridge_address: Option<String>,
    /// Mutations that one caller may have in flight; more are refused for the moment
    #[arg(long, env = "ROADSTEAD_EDGE_CALLER_SHARE", value_name = "COUNT",
        default_value_t = roadstead_door::share::DEFAULT as u16, value_parser = clap::value_parser!(u16).range(1..))]
    pub caller_share: u16,
    /// Watches that may be open at the same time; more are refused for the moment
    #[arg(long, env = "ROADSTEAD_EDGE_WATCHES", value_name = "COUNT", default_value_t = 20_000,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub watches: u32,
    /// Connections that may be open at the same time; more are closed at once
    #[arg(long, env = "ROADSTEAD_EDGE_CONNECTIONS", value_name = "COUNT", default_value_t = 16_384,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub connections: u32,
}

/// Where callers without a credential are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Where {
    /// Only if the API listens on a loopback address.
    Loopback,
    /// At any address. Whoever reaches the port administrates the platform.
    Anywhere,
    /// Nowhere.
    Never,
}

impl Config {
    /// Whether callers without a credential are accepted at the address listened on.
    pub(crate) fn allows_unauthenticated(&self) -> bool {
        let default = if self.tokens.is_some() { Where::Never } else { Where::Loopback };
        match self.allow_unauthenticated_users.unwrap_or(default) {
            Where::Loopback => self.listen.ip().is_loopback(),
            Where::Anywhere => true,
            Where::Never => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        config: Config,
    }

    fn allows(flags: &[&str]) -> bool {
        let flags = [&["edge", "--keys=k"], flags].concat();
        Flags::try_parse_from(flags).unwrap().config.allows_unauthenticated()
    }

    #[test]
    fn nobody_is_let_in_unrecognised_from_outside_unless_that_is_said() {
        assert!(allows(&[]));
        assert!(allows(&["--listen=[::1]:0", "--allow-unauthenticated-users"]));
        assert!(allows(&["--listen=0.0.0.0:1", "--allow-unauthenticated-users=anywhere"]));
        assert!(allows(&["--tokens=t", "--allow-unauthenticated-users"]));

        assert!(!allows(&["--listen=0.0.0.0:1"]));
        assert!(!allows(&["--listen=0.0.0.0:1", "--allow-unauthenticated-users"]));
        assert!(!allows(&["--listen=[::]:1", "--allow-unauthenticated-users=loopback"]));
        assert!(!allows(&["--tokens=t"]));
        assert!(!allows(&["--allow-unauthenticated-users=never"]));
    }

    #[test]
    fn a_certificate_needs_its_key() {
        assert!(Flags::try_parse_from(["edge", "--keys=k", "--tls-cert=c"]).is_err());
        assert!(Flags::try_parse_from(["edge", "--keys=k", "--tls-key=c"]).is_err());
    }
}
