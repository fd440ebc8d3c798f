//! Watches of sandboxes: what a stream shows, in which order, for whom and until when, with two of every role.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod deletion;
mod idle;
mod journal;
mod projection;
mod resume;
mod rights;
mod starvation;
mod versions;
mod watching;
mod world;
