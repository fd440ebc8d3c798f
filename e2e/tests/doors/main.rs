//! The doors under bad peers: dead, slow, hostile; and how they close.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod dead;
mod hostile;
mod shutdown;
mod world;
