//! The bridge in one process with real supervisors, on a real broker with its real permissions. Admission,
//! config-snapshot and watch are played by the test, so that it can say what they know and when they answer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails panics")]

mod calls;
mod closing;
mod desk;
mod handover;
mod logs;
mod outage;
mod over_age;
mod push;
mod readiness;
mod reports;
mod shelf;
mod upgrade;
mod world;
