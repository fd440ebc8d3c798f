//! What every role needs to start, to report and to stop, and the deployment's keys.

pub mod access;
pub mod admin;
pub mod bootstrap_token;
pub mod clock;
mod derive;
pub mod hmac_keys;
pub mod joined;
pub mod key_file;
pub mod keyring;
pub mod metrics;
pub mod readiness;
pub mod role_keys;
pub mod sandbox_token;
pub mod service;
pub mod settings;
pub mod shutdown;
pub mod status;
pub mod tasks;
pub mod telemetry;
pub mod whole_file;
