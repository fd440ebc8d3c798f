//! Logs and platform events of sandboxes: pushed at one bridge, seen at every edge.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod cursors;
mod events;
mod flood;
mod lag;
mod losses;
mod world;
