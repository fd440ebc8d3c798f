//! Postgres: pool, migrations, one file of SQL per table, and the two-flight transaction.

pub mod batch;
pub mod database;
pub mod deadline;
mod effect;
pub mod error;
mod fields;
mod first_flight;
mod flight;
pub mod in_flight;
pub mod inputs;
mod lease;
pub mod liveness;
pub mod migrate;
pub mod mutation;
pub mod operator;
pub mod outbox;
mod parameter;
pub mod read;
mod refusal;
pub mod retention;
pub mod row;
pub mod sweeper;
mod table;
pub mod tls;
pub mod view;
mod write;

pub use database::{Database, DatabaseSettings};
pub use error::{FlightError, StoreError};
pub use in_flight::{Committed, InFlight};
