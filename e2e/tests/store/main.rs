//! What Postgres holds and what leaves it: order under frozen relays, pages of a moving list, what a writer reads, clean-up,
//! migrations.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod cleanup;
mod frozen_relay;
mod migration;
mod own_writes;
mod paging;
mod restarts;
