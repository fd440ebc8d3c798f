//! `WatchSandbox`: every stream of this process follows one shared feed (D7).

mod entries;
mod feed;
mod following;
mod hub;
mod shown;
mod stream;

pub(crate) use entries::Entries;
pub(crate) use feed::Follower;
pub(crate) use hub::Hub;
pub(crate) use stream::Watches;
