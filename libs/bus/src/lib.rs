//! The message bus: the only crate that knows the broker's client.
//!
//! It offers the few calls that Roadstead's roles use, with the broker's and the client's traps closed (see
//! `docs/adr/`): durable publishes with a definite or an unknown end, requests that leave nothing behind, a pull loop
//! with one message of credit per free slot, compare-and-set buckets, gap-checked feeds, and one command client.

mod ack_subject;
pub mod activity;
pub mod bucket;
mod connection;
pub mod door;
mod enqueue;
pub mod feed;
mod health;
mod jetstream;
mod leader;
mod metrics;
pub mod permissions;
pub mod pull;
pub mod queue;
mod read;
mod replies;
mod request;
pub mod service;
mod subscribe;
pub mod topology;

pub use connection::{Bus, ConnectError, ConnectSettings};
pub use enqueue::EnqueueError;
pub use request::RequestError;
pub use subscribe::{Message, SubscribeError, Subscription};

use std::time::Duration;

/// How long a publish waits for the broker's ack, and a request to the broker for its answer (design section 3).
pub const BROKER_TIMEOUT: Duration = Duration::from_secs(2);
