//! The role on real parts: Postgres, a broker with the real users, and nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod projection;
mod reads;
mod templates_and_services;
mod world;
