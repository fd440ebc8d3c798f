//! What is stored of the sandbox: its snapshots, as they are told or read again, and what the projection shows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use roadstead_bus::bucket::Entry as Read;
use roadstead_bus::feed::News;
use roadstead_proto::bucket::SandboxKey;

use super::Session;
use crate::end::End;
use crate::entries::{self, Reread};
use crate::slots::Entry;
use crate::{entry, projection};

/// Until the next attempt after entries could not be read.
const RETRY_READ: Duration = Duration::from_secs(5);
/// After a reconnect every session reads again: spread over this for each of them, so that the broker keeps up.
const READ_SPREAD: Duration = Duration::from_millis(1);
const LONGEST_SPREAD: Duration = Duration::from_secs(5);

impl Session {
    pub(super) fn snapshot_news(&mut self, news: Option<News>) -> Option<End> {
        match news {
            Some(News::Stored(stored)) => {
                // A purged entry belongs to a sandbox that is gone, and the projection tells that.
                stored.value.map(|value| self.offer(value));
                None
            }
            Some(News::Gap) => {
                self.read_soon(Instant::now());
                None
            }
            None => Some(End::NoBroker),
        }
    }

    pub(super) fn first_entry(&mut self, first: Result<Entry, End>) -> Option<End> {
        match first {
            Ok(entry) => {
                self.outbox.offer(entry, Instant::now());
                None
            }
            // The feed may have brought one meanwhile.
            Err(End::NoConfiguration) if self.outbox.has_entry() => None,
            Err(end) => Some(end),
        }
    }

    /// Something may have been stored that this process did not hear of.
    pub(super) fn read_soon(&mut self, now: Instant) {
        let sessions = u32::try_from(self.bridge.sessions.len()).unwrap_or(u32::MAX);
        let spread = READ_SPREAD.saturating_mul(sessions).min(LONGEST_SPREAD);
        self.reread_at = self.reread_at.min(now + spread.mul_f64(rand::random()));
    }

    pub(super) fn read_again(&mut self, now: Instant) {
        // Before the first entry is there, a bootstrap is under way, which is never older.
        let push = self.snapshots.is_some() && self.first.is_none();
        let key = SandboxKey::Sandbox { workspace_id: self.workspace_id, sandbox_id: self.sandbox_id };
        let reading = entries::read_again(Arc::clone(&self.bridge), key.to_string(), self.sandbox_id, push);
        self.reread = Some(Box::pin(reading));
        // From 90 to 110 percent of the interval. What is missed while this reading is on its way brings it forward.
        self.reread_at = now + self.bridge.times.reread.mul_f64(0.9 + rand::random::<f64>() / 5.0);
    }

    pub(super) fn was_read(&mut self, read: Reread) {
        let mut failed = false;
        match read.snapshot {
            Some(Ok(Read { value: Some(value), .. })) => {
                if self.offer(value) {
                    self.bridge.metrics.missed.inc();
                }
            }
            Some(Err(_)) => failed = true,
            Some(Ok(_)) | None => {}
        }
        match read.sandbox {
            // Its end, if that is what is shown, comes as an order.
            Ok(Read { value: Some(value), .. }) => projection::shown(&self.bridge, self.sandbox_id, value),
            Ok(_) => {}
            Err(_) => failed = true,
        }
        if failed {
            let retry = Instant::now() + RETRY_READ.mul_f64(0.5 + rand::random::<f64>());
            self.reread_at = self.reread_at.min(retry);
        }
    }

    fn offer(&mut self, value: Bytes) -> bool {
        match entry::read(value) {
            Ok(entry) => self.outbox.offer(entry, Instant::now()),
            Err(error) => {
                self.bridge.metrics.not_understood.inc();
                tracing::error!(sandbox_id = %self.sandbox_id, %error, "an entry is left out");
                false
            }
        }
    }
}
