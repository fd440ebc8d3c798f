//! Admission against a real broker and a real Postgres: the test plays both doors.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails panics")]

mod backlog;
mod bare;
mod completion;
mod concurrency;
mod contention;
mod duplicates;
mod events;
mod faults;
mod fingerprints;
mod first_revision;
mod flights;
mod flow;
mod ledger;
mod lifecycle;
mod model;
mod namesakes;
mod operators;
mod outside;
mod policies;
mod queues;
mod quota;
mod readiness;
mod replies;
mod requests;
mod sessions;
mod shared;
mod sweeps;
mod templates_and_services;
mod two_steps;
mod world;
