//! From the feed of sandboxes to the hub.

use prost::Message as _;
use roadstead_bus::feed::Stored;
use roadstead_proto::bucket::{Bucket, SandboxKey};
use roadstead_proto::internal::SandboxEntry;
use tokio::time::Instant;

use super::entries::Entries;
use super::feed::{Heard, Listener};
use super::hub::Hub;
use super::shown::Shown;

/// Keeps the hub up to date.
#[derive(Debug)]
pub(crate) struct Sandboxes {
    pub(crate) hub: Hub,
    pub(crate) entries: Entries,
}

impl Listener for Sandboxes {
    const BUCKET: Bucket = Bucket::Sandboxes;

    fn stored(&self, Stored { key, value, .. }: Stored) -> Heard {
        match key.parse() {
            Ok(SandboxKey::Beat(_)) => return Heard::Beat,
            // What nobody watches is not even decoded.
            Ok(SandboxKey::Sandbox { sandbox_id, .. }) if !self.hub.is_watched(&sandbox_id) => {}
            Ok(SandboxKey::Sandbox { sandbox_id, .. }) => match value.map(SandboxEntry::decode) {
                Some(Ok(entry)) => self.hub.offer(sandbox_id, Shown::of(entry)),
                // Purged, or not to be read: Postgres knows.
                Some(Err(_)) | None => self.entries.refresh([sandbox_id]),
            },
            Err(_) => tracing::error!("the feed of sandboxes has a key that cannot be read; left out"),
        }
        Heard::Other
    }

    fn missed(&self, _after: Instant) {
        self.entries.refresh(self.hub.watched());
    }
}
