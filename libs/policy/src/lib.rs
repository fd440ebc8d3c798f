//! Sandbox policies and settings as plain values: canonical form and hash, the rules a write must keep, and the
//! composition of what a sandbox runs with. No I/O, no clock, no randomness: inputs in, values out.

pub mod budget;
pub mod canonical;
pub mod check;
pub mod compose;
pub mod environment;
pub mod fixed;
pub mod merge;
pub mod poll;
pub mod refusal;
pub mod settings;

mod ambiguity;
mod digest;
mod endpoint;
mod filesystem;
mod pattern;
mod revision;
mod structure;

pub use refusal::{Class, Reason, Refusal};
