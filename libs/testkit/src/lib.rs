//! What tests of Roadstead stand on: real servers, faults, and waiting for conditions.
//!
//! - [`run::Run`]: the Postgres of a test run, shared by all its processes; [`database::Database`]: a test's own
//!   database on it, copied from a migrated template; [`sql::Session`]: a side session, to look and to lock.
//! - [`broker::Broker`]: a test's own nats-server on a folder of its own, to restart, wipe or freeze at will.
//! - [`proxy::Proxy`]: a TCP proxy that cuts, delays, loses replies, resets, drops or stops single broker messages.
//! - [`http2`]: a client of HTTP/2 by hand, to break the protocol with.
//! - [`Postgres`]: a test's own Postgres, for tests that stop it.
//! - [`Stack`]: the whole system for one test, each role a process, proxies between them and their servers.
//! - [`Victim`]: any process, to kill, terminate, freeze.
//! - [`generate`]: unique names, and strategies for property tests.
//! - [`dice::Dice`]: chance that can be had again by its seed.
//! - [`variation`]: messages with everything set, changed in one thing, or written in another order.
//! - [`eventually()`]: waits for a condition; [`soak`]: how long the same test runs in a soak.
//!
//! It knows nothing of Roadstead's own crates, so that each of them can be tested with it.
#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a test kit fails the test, and a panic is how"
)]

pub mod broker;
pub mod database;
pub mod dice;
pub mod eventually;
pub mod generate;
pub mod http2;
mod plain_http;
pub mod postgres;
pub mod programs;
pub mod proxy;
pub mod run;
pub mod soak;
pub mod sql;
pub mod stack;
pub mod variation;
pub mod victim;

pub use broker::Broker;
pub use database::{Database, Login};
pub use eventually::eventually;
pub use postgres::Postgres;
pub use proxy::Proxy;
pub use run::Run;
pub use stack::Stack;
pub use victim::Victim;
