//! The store against a real Postgres.

mod flights;
mod guards;
mod inputs;
mod ledger;
mod liveness;
mod locks;
mod marks;
mod migrations;
mod reads;
mod retention;
mod world;
