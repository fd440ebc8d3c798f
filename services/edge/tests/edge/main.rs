//! An edge against a real broker with its real permissions. The other roles are played by the tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails panics")]

mod activity;
mod client;
mod commands;
mod recognition;
mod watch;
mod watch_role;
mod world;
