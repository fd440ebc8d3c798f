//! Comparing buckets with Postgres and repairing what differs: the net under the marks (D4).

use std::collections::HashSet;
use std::time::Duration;

use prost::Message as _;
use roadstead_bus::Bus;
use roadstead_bus::bucket::{Bucket, Incarnation, ReadError};
use roadstead_proto::bucket::{Bucket as Name, RightsKey, SandboxKey};
use roadstead_proto::internal::SandboxEntry;
use roadstead_store::Database;
use roadstead_store::sweeper::Sweeper;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::project::{Failure, Projector};

/// How often somebody looks whether there is something to sweep.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A whole sweep at leisure begins this long after the last.
const LEISURE_EVERY: Duration = Duration::from_secs(600);
/// Objects a second at leisure; without a bound after a loss.
const LEISURE_PER_SECOND: u32 = 200;
const PAGE: u32 = 200;

/// How much of a hurry a sweep is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    Leisure,
    /// The broker lost or rolled back the bucket, or the database was.
    FullSpeed,
}

/// What is known of a bucket since the last look.
#[derive(Debug, Default)]
struct Watched {
    seen: Option<(Incarnation, u64)>,
    swept: Option<tokio::time::Instant>,
}

impl Watched {
    /// Whether to sweep now. A bucket that was made anew, or whose newest revision went back, has lost entries; one
    /// never seen before may have, and is swept at full speed once. With another epoch of the database every entry is of
    /// its former life.
    fn due(&mut self, now: Incarnation, epoch: u64, at: tokio::time::Instant) -> Option<Pace> {
        let lost = match &self.seen {
            None => true,
            Some((seen, of)) => seen.created != now.created || now.last < seen.last || *of != epoch,
        };
        self.seen = Some((now, epoch));
        if lost {
            return Some(Pace::FullSpeed);
        }
        self.swept.is_none_or(|swept| at.duration_since(swept) >= LEISURE_EVERY).then_some(Pace::Leisure)
    }
}

/// The sweeper of one bucket; every replica runs one, the lock lets one work.
#[derive(Debug)]
pub(crate) struct Sweep {
    bucket: Name,
    entries: Bucket,
    database: Database,
    projector: Projector,
    reconnects: watch::Receiver<u64>,
}

impl Sweep {
    pub(crate) fn new(bus: &Bus, bucket: Name, database: Database, projector: Projector) -> Self {
        Self { bucket, entries: Bucket::new(bus, bucket), database, projector, reconnects: bus.reconnects() }
    }

    /// Sweeps until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut watched = Watched::default();
        let mut reconnects = self.reconnects.clone();
        let mut right: Option<Sweeper> = None;
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                // Soon after a reconnect, while a bucket that went back has not got as far again.
                Ok(()) = reconnects.changed() => {}
                _ = ticks.tick() => {}
            }
            match &right {
                Some(held) if held.is_held().await => {}
                _ => right = self.database.sweeper(self.bucket).await.unwrap_or_default(),
            }
            if right.is_none() {
                // Whoever takes over knows nothing of what was lost meanwhile.
                watched = Watched::default();
                continue;
            }
            let swept = tokio::select! {
                () = stop.cancelled() => return,
                swept = self.look(&mut watched) => swept,
            };
            if let Err(error) = swept {
                tracing::warn!(bucket = self.bucket.name(), %error, "the sweep broke off; it begins again");
                watched = Watched::default();
            }
        }
    }

    async fn look(&self, watched: &mut Watched) -> Result<(), Failure> {
        let now = match self.entries.incarnation().await {
            Ok(now) => now,
            // Admission makes it again, and that is seen then.
            Err(ReadError::Missing | ReadError::Unavailable) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let epoch = self.database.epoch().await?;
        let Some(pace) = watched.due(now, epoch, tokio::time::Instant::now()) else { return Ok(()) };
        let repaired = match self.bucket {
            Name::Sandboxes => self.sandboxes(epoch, pace).await?,
            Name::Rights => self.rights(pace).await?,
            Name::Snapshots => 0,
        };
        if repaired > 0 || pace == Pace::FullSpeed {
            tracing::info!(bucket = self.bucket.name(), repaired, ?pace, "swept");
        }
        watched.swept = Some(tokio::time::Instant::now());
        Ok(())
    }

    /// What Postgres has and the bucket does not show, then what the bucket shows and Postgres does not have.
    async fn sandboxes(&self, epoch: u64, pace: Pace) -> Result<usize, Failure> {
        let mut repaired = 0;
        let mut live = HashSet::new();
        let mut after = Uuid::nil();
        loop {
            let page = self.database.sandbox_versions(after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.id;
            for row in &page {
                let key = SandboxKey::Sandbox { workspace_id: row.workspace_id, sandbox_id: row.id }.to_string();
                live.insert(row.id);
                let entry = self.entries.read_from_leader(&key).await?;
                let shown = entry.value.map(SandboxEntry::decode).transpose()?;
                let up_to_date = shown
                    .is_some_and(|shown| shown.epoch >= epoch && !shown.gone && shown.version >= row.resource_version);
                if !up_to_date {
                    self.projector.sandbox(row.workspace_id, row.id).await?;
                    repaired += 1;
                }
            }
            rest(pace, page.len()).await;
        }
        for key in self.every_key().await? {
            if let Ok(SandboxKey::Sandbox { workspace_id, sandbox_id }) = key.parse()
                && !live.contains(&sandbox_id)
            {
                self.projector.sandbox(workspace_id, sandbox_id).await?;
                rest(pace, 1).await;
            }
        }
        Ok(repaired)
    }

    async fn rights(&self, pace: Pace) -> Result<usize, Failure> {
        let mut after = Uuid::nil();
        loop {
            let page = self.database.workspace_ids(after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = *last;
            for id in &page {
                self.projector.rights(*id).await?;
            }
            rest(pace, page.len()).await;
        }
        for key in self.every_key().await? {
            if let Ok(RightsKey::Workspace(id)) = key.parse() {
                self.projector.rights(id).await?;
                rest(pace, 1).await;
            }
        }
        Ok(0)
    }

    async fn every_key(&self) -> Result<Vec<String>, Failure> {
        let mut keys = Vec::new();
        loop {
            let page = self.entries.keys(keys.len()).await?;
            if page.is_empty() {
                return Ok(keys);
            }
            keys.extend(page);
        }
    }
}

async fn rest(pace: Pace, objects: usize) {
    if pace == Pace::Leisure {
        let objects = u32::try_from(objects).unwrap_or(u32::MAX);
        tokio::time::sleep(Duration::from_secs(1) * objects / LEISURE_PER_SECOND).await;
    }
}

#[cfg(test)]
mod tests {
    use roadstead_bus::bucket::Revision;

    use super::*;

    fn incarnation(created: &str, last: u64) -> Incarnation {
        Incarnation { created: created.to_owned(), last: Revision(last) }
    }

    #[test]
    fn full_speed_is_for_losses_and_a_mere_reconnect_triggers_nothing() {
        let start = tokio::time::Instant::now();
        let mut watched = Watched::default();
        assert_eq!(watched.due(incarnation("a", 10), 1, start), Some(Pace::FullSpeed));
        watched.swept = Some(start);
        assert_eq!(watched.due(incarnation("a", 10), 1, start), None);
        assert_eq!(watched.due(incarnation("a", 12), 1, start), None);
        assert_eq!(watched.due(incarnation("a", 5), 1, start), Some(Pace::FullSpeed), "rolled back");
        assert_eq!(watched.due(incarnation("b", 6), 1, start), Some(Pace::FullSpeed), "made anew");
        assert_eq!(watched.due(incarnation("b", 7), 2, start), Some(Pace::FullSpeed), "another life of the database");
        assert_eq!(watched.due(incarnation("b", 7), 2, start), None);
        assert_eq!(watched.due(incarnation("b", 7), 2, start + LEISURE_EVERY), Some(Pace::Leisure));
    }
}
