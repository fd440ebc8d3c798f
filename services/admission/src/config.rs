//! Settings of the role.

use std::time::Duration;

use clap::Args;
use roadstead_service_kit::settings::{
    AdminSettings, BootstrapSettings, BrokerSettings, DatabaseSettings, KeysSettings, ServiceUrls,
};

use crate::context::Rules;

/// Every write: takes commands and reports from the queues, decides them in Postgres under the ledger, answers, and
/// publishes which objects changed. It makes the broker's streams and buckets. Any number of replicas share the work.
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
    /// Commands of users that are worked on at the same time
    #[arg(long, env = "ROADSTEAD_COMMAND_SLOTS", default_value_t = 12,
        value_parser = clap::value_parser!(u16).range(1..=256))]
    pub command_slots: u16,
    /// Reports of supervisors that are worked on at the same time; they never take the users' slots
    #[arg(long, env = "ROADSTEAD_REPORT_SLOTS", default_value_t = 6,
        value_parser = clap::value_parser!(u16).range(1..=256))]
    pub report_slots: u16,
    /// Copies of each stream that the broker keeps: 1, or 3 and more on a cluster
    #[arg(long, env = "ROADSTEAD_STREAM_REPLICAS", default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(1..=5))]
    pub stream_replicas: u8,
    /// Request ids that are kept for one caller at a time
    #[arg(long, env = "ROADSTEAD_REQUEST_ID_QUOTA", default_value_t = 1000,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub request_id_quota: u32,
    /// How long a sandbox's token is valid, in seconds
    #[arg(long, env = "ROADSTEAD_TOKEN_LIFETIME_SECONDS", default_value_t = 900,
        value_parser = clap::value_parser!(u64).range(60..=86_400))]
    pub token_lifetime_seconds: u64,
    /// How long a sandbox has to connect and to accept its configuration, in seconds
    #[arg(long, env = "ROADSTEAD_PROVISIONING_SECONDS", default_value_t = 300,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub provisioning_seconds: u64,
    /// Image of a sandbox that names none
    #[arg(long, env = "ROADSTEAD_DEFAULT_IMAGE", default_value = "nvcr.io/nvidia/base/ubuntu:24.04")]
    pub default_image: String,
    /// Members that a workspace may have
    #[arg(long, env = "ROADSTEAD_MEMBERS_PER_WORKSPACE", default_value_t = 1000,
        value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub members_per_workspace: u64,
    /// How long an effect outside the database may take, in seconds. One that has not ended by then stands as started
    /// until an operator settles it
    #[arg(long, env = "ROADSTEAD_EFFECT_SECONDS", default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(1..=60))]
    pub effect_seconds: u64,
    /// Workload templates that a workspace may have
    #[arg(long, env = "ROADSTEAD_TEMPLATES_PER_WORKSPACE", default_value_t = 1000,
        value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub templates_per_workspace: u64,
    #[command(flatten)]
    pub service_urls: ServiceUrls,
    #[command(flatten)]
    pub bootstrap: BootstrapSettings,
}

impl Config {
    /// What is configured about mutations themselves.
    #[must_use]
    pub fn rules(&self) -> Rules {
        Rules {
            default_image: self.default_image.clone(),
            provisioning_window: Duration::from_secs(self.provisioning_seconds),
            members_per_workspace: self.members_per_workspace,
            templates_per_workspace: self.templates_per_workspace,
            service_urls: self.service_urls.clone(),
        }
    }
}
