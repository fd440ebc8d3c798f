//! A client of the supervisor-bridge: connects for one sandbox, takes its configuration and environment, applies each
//! half to a folder, answers, and keeps on through restarts of the bridge.
//!
//! What a bridge pushes on the session counts as long as that session pushes; of a bridge that does not, the
//! configuration is asked for every few seconds.
//!
//! `roadstead supervisor`, the demo, the tests and the benchmarks use the same code; a [`Behaviour`] can make it reject,
//! stay silent or stop reading, and an [`Observer`] is told everything it receives.

mod applied;
mod apply;
mod backoff;
mod behaviour;
mod bridges;
mod calls;
mod client;
mod judge;
mod log;
mod observed;
mod owed;
mod policy;
mod poll;
mod polled;
mod readiness;
mod session;
mod settings;
mod take;
mod token;
mod verdict;

pub use apply::{CONFIG_FILE, ENVIRONMENT_FILE, StoreError};
pub use backoff::Backoff;
pub use behaviour::{Answer, Behaviour, Decision};
pub use client::{Connection, StartError, Status, Supervisor};
pub use judge::{Judge, Judged};
pub use log::Log;
pub use observed::{ConfigSeen, EnvironmentSeen, Frame, Observation, Observer, Recorder};
pub use policy::default_policy;
pub use settings::Settings;
pub use token::{Token, TokenError, TokenSource};
