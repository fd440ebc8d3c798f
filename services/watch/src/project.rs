//! Keeping the entries of the buckets `sandboxes` and `rights`: the loop of D5, entry first, then Postgres, then a
//! compare-and-set.

use std::time::Duration;

use bytes::Bytes;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use prost::Message;
use roadstead_bus::Bus;
use roadstead_bus::bucket::{Bucket, ReadError, Revision, UpdateError};
use roadstead_bus::pull::Delivery;
use roadstead_proto::bucket::{Bucket as Name, RightsKey, SandboxKey};
use roadstead_proto::internal::{RightsEntry, SandboxEntry};
use roadstead_proto::subject::{Changed, Kind};
use roadstead_store::{Database, StoreError, view};
use uuid::Uuid;

use crate::projection::{self, Step};

/// Most attempts at one entry while others keep changing it. They make progress, so the mark is put back then.
const ATTEMPTS: usize = 16;
/// Pauses before a mark is tried again: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Why an entry was not brought up to date.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Update(#[from] UpdateError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the entry that stands cannot be read")]
    Damaged(#[from] prost::DecodeError),
    #[error("others keep changing the entry")]
    Contended,
}

/// How projecting goes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    written: Counter,
    kept: Counter,
    conflicts: Counter,
    failures: Counter,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let Self { written, kept, conflicts, failures } = &metrics;
        registry.register("projection_written", "Entries written to a bucket", written.clone());
        registry.register("projection_kept", "Entries found up to date", kept.clone());
        registry.register("projection_conflicts", "Entries that another replica changed first", conflicts.clone());
        registry.register("projection_failures", "Marks put back because of a failure", failures.clone());
        metrics
    }
}

/// The writer of both buckets.
#[derive(Clone, Debug)]
pub(crate) struct Projector {
    database: Database,
    sandboxes: Bucket,
    rights: Bucket,
    metrics: Metrics,
}

impl Projector {
    pub(crate) fn new(bus: &Bus, database: Database, metrics: Metrics) -> Self {
        Self { database, sandboxes: Bucket::new(bus, Name::Sandboxes), rights: Bucket::new(bus, Name::Rights), metrics }
    }

    /// Handles one mark. It is acked when the entry stands.
    pub(crate) async fn take(&self, mark: Delivery) {
        let Ok(changed) = mark.subject().parse::<Changed>() else {
            return mark.not_understood("no known object").await;
        };
        match mark.holding(self.project(changed)).await {
            Ok(()) => mark.ack().await,
            Err(error) => {
                self.metrics.failures.inc();
                let pause = pause(mark.attempt());
                tracing::warn!(mark = mark.subject(), %error, ?pause, "not projected; put back");
                mark.put_back(pause).await;
            }
        }
    }

    async fn project(&self, changed: Changed) -> Result<(), Failure> {
        match changed.kind {
            Kind::Sandbox => self.sandbox(changed.workspace_id, changed.object_id).await,
            Kind::Workspace => self.rights(changed.object_id).await,
            Kind::Member => self.rights(changed.workspace_id).await,
            Kind::Provider | Kind::Global => Ok(()),
        }
    }

    /// Brings the entry of one sandbox up to date.
    pub(crate) async fn sandbox(&self, workspace_id: Uuid, sandbox_id: Uuid) -> Result<(), Failure> {
        let key = SandboxKey::Sandbox { workspace_id, sandbox_id }.to_string();
        let workspace_id = workspace_id.to_string();
        for _ in 0..ATTEMPTS {
            let (standing, revision) = read::<SandboxEntry>(&self.sandboxes, &key).await?;
            let (epoch, rows) = self.database.sandbox_entries(&[sandbox_id]).await?;
            let row = rows.first().and_then(Option::as_ref).map(view::sandbox);
            let step = projection::sandbox(standing.as_ref(), epoch, &workspace_id, row);
            if self.write(&self.sandboxes, &key, step, |entry| entry.gone, revision).await? {
                return Ok(());
            }
        }
        Err(Failure::Contended)
    }

    /// Brings the entry of one workspace's rights up to date.
    pub(crate) async fn rights(&self, workspace_id: Uuid) -> Result<(), Failure> {
        let key = RightsKey::Workspace(workspace_id).to_string();
        for _ in 0..ATTEMPTS {
            let (standing, revision) = read::<RightsEntry>(&self.rights, &key).await?;
            let (epoch, members) = self.database.rights(workspace_id).await?;
            let step = projection::rights(standing.as_ref(), epoch, members);
            if self.write(&self.rights, &key, step, |entry| entry.gone, revision).await? {
                return Ok(());
            }
        }
        Err(Failure::Contended)
    }

    /// Whether the entry stands now. The last word on what is gone runs out by itself.
    async fn write<E: Message>(
        &self,
        bucket: &Bucket,
        key: &str,
        step: Step<E>,
        gone: impl Fn(&E) -> bool,
        expected: Revision,
    ) -> Result<bool, Failure> {
        let Step::Put(entry) = step else {
            self.metrics.kept.inc();
            return Ok(true);
        };
        let value: Bytes = entry.encode_to_vec().into();
        let written = if gone(&entry) {
            bucket.update_with_ttl(key, value, expected, Name::MARKER_AGE).await
        } else {
            bucket.update(key, value, expected).await
        };
        match written {
            Ok(_) => {
                self.metrics.written.inc();
                Ok(true)
            }
            Err(UpdateError::Conflict) => {
                self.metrics.conflicts.inc();
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}

async fn read<E: Message + Default>(bucket: &Bucket, key: &str) -> Result<(Option<E>, Revision), Failure> {
    let entry = bucket.read_from_leader(key).await?;
    Ok((entry.value.map(E::decode).transpose()?, entry.revision))
}

/// 1 s, doubling to a minute.
fn pause(attempt: u64) -> Duration {
    let doublings = u32::try_from(attempt.saturating_sub(1)).unwrap_or(u32::MAX).min(6);
    LONGEST_PAUSE.min(FIRST_PAUSE * 2u32.pow(doublings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_a_minute() {
        let pauses: Vec<_> = [1, 2, 3, 6, 7, 8, u64::MAX].map(|attempt| pause(attempt).as_secs()).into();
        assert_eq!(pauses, [1, 2, 4, 32, 60, 60, 60]);
    }
}
