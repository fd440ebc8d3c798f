//! Settings of the role.

use clap::Args;
use roadstead_service_kit::settings::{AdminSettings, BrokerSettings, DatabaseSettings, KeysSettings, ServiceUrls};

/// The read side: answers get and list from Postgres, and projects sandboxes and rights into the broker's buckets, from
/// which every edge follows them. Any number of replicas share the work.
#[derive(Args, Clone, Debug)]
pub struct Config {
    #[command(flatten)]
    pub broker: BrokerSettings,
    #[command(flatten)]
    pub database: DatabaseSettings,
    #[command(flatten)]
    pub keys: KeysSettings,
    #[command(flatten)]
    pub admin: AdminSettings,
    /// Objects that are projected at the same time
    #[arg(long, env = "ROADSTEAD_PROJECTION_SLOTS", default_value_t = 8,
        value_parser = clap::value_parser!(u16).range(1..=256))]
    pub projection_slots: u16,
    /// Reads that are answered at the same time; more are refused for the moment
    #[arg(long, env = "ROADSTEAD_READ_SLOTS", default_value_t = 64,
        value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub read_slots: u16,
    #[command(flatten)]
    pub service_urls: ServiceUrls,
}
