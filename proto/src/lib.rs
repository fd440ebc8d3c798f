//! The protocol of Roadstead: the public API and the messages between its services.

pub mod api;

