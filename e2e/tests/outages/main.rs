//! Parts of the whole system die, hang and lose their memory while it works: nothing fails that need not, nothing is
//! done twice, and everything agrees again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod broker;
mod crash;
mod database;
mod edge;
mod happy;
mod healthy;
mod kill;
mod oracle;
mod recover;
mod refusal;
mod skew;
