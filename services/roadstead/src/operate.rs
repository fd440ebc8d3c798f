//! The operator's commands that work on the deployment itself.

pub(crate) mod bridge;
pub(crate) mod health;
pub(crate) mod keys;
pub(crate) mod ledger;
pub(crate) mod migrate;
pub(crate) mod operator;
pub(crate) mod recover;
pub(crate) mod supervisor;
