//! What a broken, full or flapping broker does to those who read.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod caches;
mod expiry;
mod flapping;
mod frozen_reader;
mod full;
mod idle;
mod replicated;
