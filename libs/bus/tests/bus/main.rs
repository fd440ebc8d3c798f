//! The bus against a real broker.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails panics")]

mod activity;
mod buckets;
mod cluster;
mod commands;
mod connection;
mod feeds;
mod marks;
mod permissions;
mod pulls;
mod services;
mod subscriptions;
mod topology;
mod world;
