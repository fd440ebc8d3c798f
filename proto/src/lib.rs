//! The protocol of Roadstead: the public API and the messages between its services.

pub mod api;
pub mod method;

pub mod internal {
    //! The messages between the services: package `roadstead.v1`.

    pub use crate::api::generated::roadstead::v1::*;
}
