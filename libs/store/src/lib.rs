//! Postgres: pool, migrations, one file of plain SQL per table, and the two-flight transaction.

pub mod mutation;
pub mod row;
pub mod view;
