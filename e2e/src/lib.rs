//! What whole-system tests share: clients of the public API, supervised sandboxes, load, and the oracle that is asked
//! after every fault.
//!
//! - [`api`]: clients and the parts of requests; [`policy`]: policies to tell apart.
//! - [`raw`]: any bytes to any method.
//! - [`Fleet`]: a workspace with supervised sandboxes that are READY, and a watch on each through each edge.
//! - [`Held`]: a session by hand; [`Mint`]: tokens with times of a test's choice.
//! - [`Load`]: mutations with and without request ids through all edges, and what was told of each.
//! - [`effect`]: *effect count*, each mutation had as many effects as what was told allows; [`convergence`]: all parties
//!   hold the same; [`Fleet::assert_never_unready`]: no sandbox has left READY.
//! - [`connection`]: the broker as a role sees it.
//! - [`Pushing`]: a sandbox's log, as its writer pushes it.
//! - [`Toggle`]: changes of a sandbox that every watch shows.
//! - [`StolenBridge`]: speaks at the broker with a bridge's keys, past the bridge.
//!
//! The deciding parts are pure. What Postgres holds is asked by a side session.
#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a test kit fails the test, and a panic is how"
)]

pub mod api;
pub mod connection;
pub mod convergence;
pub mod effect;
pub mod fleet;
pub mod held;
pub mod load;
pub mod mint;
pub mod policy;
pub mod pushing;
pub mod raw;
pub mod stolen_bridge;
pub mod toggle;
pub mod watched;

pub use fleet::Fleet;
pub use held::Held;
pub use load::Load;
pub use mint::Mint;
pub use pushing::Pushing;
pub use stolen_bridge::StolenBridge;
pub use toggle::Toggle;
pub use watched::Watched;
