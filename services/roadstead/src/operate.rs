//! The operator's commands that work on the deployment itself.

pub mod health;
pub mod keys;
pub mod migrate;
pub mod mint;
pub mod supervisor;
