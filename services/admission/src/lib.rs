//! Admission: every write of the control plane. It alone decides about state, and it alone owns the broker's topology.

pub mod caller;
pub mod context;
pub mod ledger;
pub mod name;
pub mod operation;
pub mod phase;
pub mod refusal;
pub mod validate;

#[cfg(test)]
mod sample;
