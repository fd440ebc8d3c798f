//! Log lines and platform events of sandboxes (D8): `GetSandboxLogs`, and what `WatchSandbox` shows of them.
//!
//! Pure: [`filter`] says what is wanted, [`tail`] and [`resume`] where a stream begins, [`lines`] what it shows next, [`seen`]
//! what the feed has missed. Around them:
//! [`reader`] reads the broker's stream, [`feed`] brings what is new to the [`hub`], [`get_logs`] and [`follower`] serve
//! clients.

pub(crate) mod feed;
mod filter;
mod follower;
mod get_logs;
mod hub;
mod line;
mod lines;
mod metrics;
#[cfg(test)]
mod model;
mod newest;
mod reader;
mod resume;
mod seen;
mod tail;

pub(crate) use follower::Follower;
pub(crate) use hub::Hub;
pub(crate) use metrics::Metrics;
pub(crate) use reader::Reader;

use roadstead_bus::Bus;

/// What serves lines and events. Clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct Activity {
    pub(crate) bus: Bus,
    pub(crate) reader: Reader,
    pub(crate) hub: Hub,
    pub(crate) metrics: Metrics,
}

impl Activity {
    pub(crate) fn new(bus: &Bus, metrics: Metrics) -> Self {
        Self { bus: bus.clone(), reader: Reader::new(bus), hub: Hub::default(), metrics }
    }
}
