//! The admin port and the end of the process.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::Args;
use roadstead_proto::role::Role;

/// Where the role tells how it is, and how long it may take to stop.
#[derive(Args, Clone, Debug)]
pub struct AdminSettings {
    /// Address for /livez, /readyz and /metrics. They show no secret, but keep them off public networks. By default a
    /// port of 127.0.0.1: edge 17680, admission 17681, config-snapshot 17682, watch 17683, supervisor-bridge 17684
    #[arg(long, env = "ROADSTEAD_ADMIN_LISTEN", value_name = "ADDRESS")]
    admin_listen: Option<SocketAddr>,
    /// After SIGTERM, how many seconds calls and streams get to finish; then they are cut. A second signal cuts at once
    #[arg(long, env = "ROADSTEAD_DRAIN_SECONDS", value_name = "SECONDS", default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    drain_seconds: u64,
}

impl AdminSettings {
    /// The address that was asked for, else the role's own.
    #[must_use]
    pub fn address(&self, role: Role) -> SocketAddr {
        self.admin_listen.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, admin_port(role))))
    }

    /// How long a drain may take.
    #[must_use]
    pub const fn drain_deadline(&self) -> Duration {
        Duration::from_secs(self.drain_seconds)
    }
}

/// The admin port of each role, unless told otherwise.
#[must_use]
pub const fn admin_port(role: Role) -> u16 {
    match role {
        Role::Edge => 17680,
        Role::Admission => 17681,
        Role::ConfigSnapshot => 17682,
        Role::Watch => 17683,
        Role::SupervisorBridge => 17684,
        Role::Operator => 0,
    }
}
