//! What a door (edge, supervisor-bridge) needs to send commands.

mod client;
mod resend;

pub use client::{CallError, CommandClient};
