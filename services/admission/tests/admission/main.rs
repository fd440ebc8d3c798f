//! Admission against a real broker and a real Postgres: the test plays both doors.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails panics")]

mod duplicates;
mod faults;
mod flow;
mod ledger;
mod operators;
mod outside;
mod queues;
mod quota;
mod sessions;
mod sweeps;
mod two_steps;
mod world;
