//! Settings that several roles share, one struct for each thing they reach. Flattened into a role's own.

mod admin;
mod bootstrap;
mod broker;
mod database;
mod keys;
mod log;
mod network;
mod services;

pub use admin::{AdminSettings, admin_port};
pub use bootstrap::BootstrapSettings;
pub use broker::BrokerSettings;
pub use database::DatabaseSettings;
pub use keys::KeysSettings;
pub use log::{LogFormat, LogLevel, LogSettings};
pub use network::AddressError;
pub use services::ServiceUrls;

#[cfg(test)]
mod tests;
