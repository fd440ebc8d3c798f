//! Admission under fire: at most once whatever is sent twice, by whom, when and through which process, and honest about
//! what it does not know.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod callers;
mod ending;
mod keys;
mod namesakes;
mod overlap;
mod overload;
mod quota;
mod replays;
mod scope;
mod share;
mod unresolved;
mod world;
