//! The operator's commands that work on the deployment itself.

pub(crate) mod health;
pub(crate) mod keys;
pub(crate) mod migrate;
pub(crate) mod mint;
pub(crate) mod supervisor;
