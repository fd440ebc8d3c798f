//! Postgres: pool, migrations, one file of SQL per table, and the two-flight transaction.

pub mod database;
mod effect;
pub mod error;
mod fields;
mod first_flight;
mod flight;
pub mod in_flight;
mod lease;
pub mod migrate;
pub mod mutation;
mod parameter;
mod refusal;
pub mod retention;
pub mod row;
mod table;
pub mod view;
mod write;

pub use database::{Database, DatabaseSettings};
pub use error::{FlightError, StoreError};
pub use in_flight::{Committed, InFlight};
