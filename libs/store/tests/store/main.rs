//! The store against a real Postgres.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed step fails the test")]

mod batches;
mod cleanup;
mod completion;
mod deadlines;
mod flights;
mod guards;
mod inputs;
mod ledger;
mod lists;
mod liveness;
mod locks;
mod marks;
mod migrations;
mod quota;
mod reads;
mod retention;
mod templates_and_services;
mod tls;
mod world;
