//! Settings of the role.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use http::Uri;
use roadstead_service_kit::settings::{AdminSettings, BootstrapSettings, BrokerSettings, KeysSettings};

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
    /// Where supervisors that other bridges hand over reach this one, such as https://bridge-1.example:17671; {hostname}
    /// in it stands for the name of this machine or container. Without it, or empty, none is handed over to it
    #[arg(long, env = "ROADSTEAD_ADVERTISE", value_name = "URL", value_parser = advertised)]
    pub advertise: Option<Advertised>,
    /// Whether it hands sessions over, a few at a time, while the bridges hold very different numbers of them
    #[arg(long, env = "ROADSTEAD_REBALANCE", value_enum, default_value_t = Rebalance::Auto)]
    pub rebalance: Rebalance,
    /// Seconds for which a session that was handed over stays where it came to, unless that bridge stops
    #[arg(long, env = "ROADSTEAD_SETTLE_SECONDS", default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub settle_seconds: u64,
    /// Whether sessions are sent configuration, if their supervisors take it, or supervisors ask for it
    #[arg(long, env = "ROADSTEAD_CONFIG_DELIVERY_MODE", value_enum, default_value_t = Delivery::Push)]
    pub config_delivery_mode: Delivery,
    #[command(flatten)]
    pub bootstrap: BootstrapSettings,
}

/// How configuration comes to supervisors.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// On their sessions, as it changes.
    Push,
    /// By their questions.
    Poll,
}

/// When sessions are evened out among bridges.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rebalance {
    /// When an operator says so, and slowly by itself.
    Auto,
    /// Only when an operator says so.
    Never,
}

/// Where supervisors reach a bridge: scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(String);

/// Where a bridge says that supervisors reach it; none if its setting is empty, as one that is passed through may be.
pub type Advertised = Option<Endpoint>;

/// It is not such a URL.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("must be http:// or https:// with a host and a port, of at most 256 bytes")]
pub struct NotAnEndpoint;

impl Endpoint {
    const BYTES: usize = 256;

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Endpoint {
    type Err = NotAnEndpoint;

    fn from_str(text: &str) -> Result<Self, NotAnEndpoint> {
        let uri: Uri = text.parse().map_err(|_| NotAnEndpoint)?;
        let scheme = matches!(uri.scheme_str(), Some("http" | "https"));
        let bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        let fits = scheme && bare && uri.port().is_some() && text.len() <= Self::BYTES && !text.contains('@');
        if fits { Ok(Self(text.to_owned())) } else { Err(NotAnEndpoint) }
    }
}

/// Stands for the name of this machine or container in what is advertised: the same setting then serves all replicas.
const HOSTNAME: &str = "{hostname}";

/// An endpoint of this process, with its host's own name where that is asked for.
fn advertised(text: &str) -> Result<Advertised, String> {
    if text.is_empty() {
        return Ok(None);
    }
    if !text.contains(HOSTNAME) {
        return text.parse().map(Some).map_err(|error: NotAnEndpoint| error.to_string());
    }
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_err(|error| format!("the name of this machine cannot be read: {error}"))?;
    let text = text.replace(HOSTNAME, name.trim());
    text.parse().map(Some).map_err(|error: NotAnEndpoint| format!("{text}: {error}"))
}

/// The times of a session.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Between heartbeats, of both sides.
    pub heartbeat: Duration,
    /// After which entries are read again.
    pub reread: Duration,
    /// For which a session that was handed over stays.
    pub settle: Duration,
}

impl Config {
    /// The times of its sessions.
    #[must_use]
    pub const fn times(&self) -> Times {
        Times {
            heartbeat: Duration::from_secs(self.heartbeat_seconds),
            reread: Duration::from_secs(self.reread_seconds),
            settle: Duration::from_secs(self.settle_seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_scheme_host_and_port() {
        for good in ["http://127.0.0.1:1", "https://bridge-1.example:17671", "https://[::1]:443/"] {
            assert!(good.parse::<Endpoint>().is_ok(), "{good}");
        }
        let long = format!("http://{}:1", "a".repeat(256));
        for bad in ["", "bridge:1", "ftp://b:1", "http://b", "http://b:1/x", "http://b:1/?q", "http://u@b:1", &long] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_empty_address_is_none() {
        #[derive(clap::Parser)]
        struct Flags {
            #[command(flatten)]
            config: Config,
        }
        let parse =
            |flag| <Flags as clap::Parser>::try_parse_from(["bridge", "--nats-url=nats://b:1", "--keys=k", flag]);
        let advertise = |flag| parse(flag).map(|flags| flags.config.advertise.flatten());
        assert_eq!(advertise("--advertise=").unwrap(), None);
        assert_eq!(advertise("--advertise=http://b:1").unwrap(), Some(Endpoint("http://b:1".to_owned())));
        assert!(advertise("--advertise= ").is_err());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_name_of_the_machine_is_filled_in_where_it_is_advertised_and_nowhere_else() {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let endpoint = |text| advertised(text).unwrap().unwrap();
        assert_eq!(endpoint("http://{hostname}:17671").as_str(), format!("http://{}:17671", name.trim()));
        assert_eq!(endpoint("https://b:1").as_str(), "https://b:1");
        assert!(advertised("http://{host}:1").is_err());
        assert!("http://{hostname}:1".parse::<Endpoint>().is_err(), "what another bridge says is taken as it is");
    }
}
