//! `WatchSandbox`: every stream of this process follows one shared feed (D7).

mod authorize;
mod entries;
pub(crate) mod feed;
mod following;
mod hub;
mod metrics;
#[cfg(test)]
mod model;
mod rights;
mod sandboxes;
mod shown;
mod stream;

pub(crate) use entries::Entries;
pub(crate) use hub::Hub;
pub(crate) use metrics::Metrics;
pub(crate) use rights::Rights;
pub(crate) use sandboxes::Sandboxes;
pub(crate) use stream::Watches;
