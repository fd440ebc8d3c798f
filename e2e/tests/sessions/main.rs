//! Supervisors and their sessions: what they are sent, what counts of what they say, and what becomes of their sandbox.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod cold;
mod crowd;
mod exits;
mod expired;
mod expiring;
mod fan_out;
mod locked_row;
mod lost_message;
mod own_only;
mod polling;
mod readiness;
mod rejected;
mod restarted;
mod rolling;
mod settled;
mod silent;
mod slow_reader;
mod storm;
mod takeover;
mod uneven;
mod vouched;
mod waiting;
mod world;
