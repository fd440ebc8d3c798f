//! What the two doors share, the clients' (edge) and the supervisors' (bridge): the gRPC port, the recognition of
//! callers, and the way of a command to admission and back.

pub mod auth;
mod call;
pub mod clock;
pub mod commands;
pub mod deadline;
pub mod drain;
pub mod frame;
mod front;
pub mod listener;
pub mod metrics;
pub mod others;
mod plain_http;
mod preface;
mod reader;
mod request_id;
mod revision;
pub mod share;
mod stalled;
pub mod status;
pub mod tls;
mod trace;
mod unread;
mod unsent;

pub use call::{Call, Reply};
pub use front::{Door, Front, Limits, OtherServices, is_unary};
pub use plain_http::Health;
pub use reader::PIECE;
