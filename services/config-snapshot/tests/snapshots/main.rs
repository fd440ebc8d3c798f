//! The role against a real broker with its real permissions, and a real Postgres with its real grants.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails panics")]

mod builds;
mod losses;
mod races;
mod readiness;
mod reads;
mod world;
