//! The port of a door, from outside: clients good and bad on real connections.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails panics")]

mod closing;
mod dead;
mod documented;
mod hostile;
mod serving;
mod slow;
mod tls;
mod world;
