//! One file per table: its SQL, and how its rows are written and read.

pub(crate) mod attachment;
pub(crate) mod claim;
pub(crate) mod command;
pub(crate) mod effect;
pub(crate) mod epoch;
pub(crate) mod forgotten;
pub(crate) mod member;
pub(crate) mod observation;
pub(crate) mod operator_act;
pub(crate) mod outbox;
pub(crate) mod policy_revision;
pub(crate) mod process;
pub(crate) mod provider;
pub(crate) mod provider_receipt;
pub(crate) mod quota;
pub(crate) mod sandbox;
pub(crate) mod service_endpoint;
pub(crate) mod set_aside;
pub(crate) mod setting;
pub(crate) mod workload_template;
pub(crate) mod workspace;
