//! nats-server and Postgres as supervised child processes in a data folder.
//!
//! `roadstead all` and the test kit start both this way. A server is first *prepared* (its program found, its folder
//! and port chosen, for Postgres its cluster made) and then *started*, any number of times; a start returns when the
//! server answers. A running server ends with the process that started it, however that process ends.
//!
//! [`Embedded`] is the pair of both, restarted when one dies; [`NatsServer`] and [`PostgresServer`] are the parts.

pub mod account;
pub mod binaries;
pub mod embedded;
pub mod error;
pub mod folder;
pub mod keep;
mod leash;
pub mod nats_server;
pub mod port;
pub mod postgres;
pub mod process;

pub use binaries::Binaries;
pub use embedded::{Embedded, EmbeddedSettings};
pub use error::Error;
pub use keep::{Kept, RestartPolicy};
pub use nats_server::{NatsServer, NatsSettings};
pub use postgres::{PostgresServer, PostgresSettings};
pub use process::Process;
