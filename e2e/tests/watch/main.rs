//! Watches of sandboxes: what a stream shows, in which order, for whom and until when, with two of every role.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod idle;
