//! Who may call what, from outside: every method at both doors, for every kind of caller and every kind of credential.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod another_sandbox;
mod bad_tokens;
mod forged;
mod matrix;
mod no_credential;
mod requests;
mod world;
