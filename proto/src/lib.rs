//! What Roadstead's processes say to each other and to the world: messages, subjects, streams, keys. No I/O.

pub mod activity;
pub mod api;
pub mod bucket;
pub mod cursor;
pub mod id;
pub mod inbox;
pub mod method;
pub mod page_token;
pub mod role;
pub mod sealing;
pub mod stream;
pub mod subject;

/// The messages between the services: package `roadstead.v1`.
pub mod internal {
    pub use crate::api::generated::roadstead::v1::*;
}
