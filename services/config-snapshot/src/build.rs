//! The one builder (D5): whoever needs a snapshot, for a mark, a session or a sweep, runs this loop.

use std::sync::Arc;

use prost::Message as _;
use roadstead_bus::bucket::{Bucket, ReadError, Revision, UpdateError};
use roadstead_policy::compose::{Composed, Deployment, compose};
use roadstead_proto::internal::SnapshotEntry;
use roadstead_proto::sealing::{CipherKeys, OpenError};
use roadstead_service_kit::joined::Joined;
use roadstead_service_kit::telemetry;
use roadstead_store::inputs::{Inputs, Named};
use roadstead_store::read::Seen;
use roadstead_store::{Database, StoreError};
use tokio::time::Instant;
use tracing::Instrument as _;
use uuid::Uuid;

use crate::entry::{Farewell, Step, WrongDatabase, decide, farewell};
use crate::inputs::inputs;
use crate::metrics::{Metrics, Outcome};
use crate::snapshot::{Place, Snapshot, SnapshotKeys};

/// How often a build may find that the entry was changed under its hands.
const ATTEMPTS: usize = 10;

/// What stands after a build.
#[derive(Clone, Debug)]
pub(crate) enum Standing {
    /// An accepted entry that shows Postgres as it was after the build began.
    Entry { entry: Box<SnapshotEntry>, generation: u64 },
    /// There is no such sandbox, and no entry.
    Gone,
}

/// Why a build came to nothing. Nothing was handed out, and the entry that stood stands.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the entry cannot be read: {0}")]
    Read(#[from] ReadError),
    #[error("the entry cannot be written: {0}")]
    Write(#[source] UpdateError),
    #[error(transparent)]
    WrongDatabase(#[from] WrongDatabase),
    /// A key is missing, or a credential was tampered with.
    #[error("a credential cannot be opened: {0}")]
    Credential(#[from] OpenError),
    #[error("the entry was changed by others each time")]
    Contended,
    #[error("the role is stopping")]
    Stopping,
}

/// Builds snapshots. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Builder(Arc<Parts>);

/// What a builder works with.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) database: Database,
    pub(crate) inputs: Joined<Uuid, Result<Drawn, StoreError>>,
    pub(crate) inputs_by_name: Joined<Named, Result<Seen<Option<Inputs>>, StoreError>>,
    pub(crate) bucket: Bucket,
    pub(crate) keys: SnapshotKeys,
    /// Opens credentials; the context is the provider's id, as 16 bytes.
    pub(crate) credentials: CipherKeys,
    pub(crate) deployment: Deployment,
    pub(crate) metrics: Metrics,
}

/// Inputs as they were read after a number was drawn.
#[derive(Debug)]
pub(crate) struct Drawn {
    pub(crate) sequence: u64,
    /// None: the sandbox is gone.
    pub(crate) inputs: Option<Inputs>,
}

/// An entry as it was read.
struct Read {
    /// None also if it does not decode; then it is replaced.
    standing: Option<SnapshotEntry>,
    revision: Revision,
}

impl Builder {
    /// A builder of these parts.
    #[must_use]
    pub(crate) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// The role's metrics.
    #[must_use]
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// The role's database.
    #[must_use]
    pub(crate) fn database(&self) -> &Database {
        &self.0.database
    }

    /// The bucket of snapshots.
    #[must_use]
    pub(crate) fn bucket(&self) -> &Bucket {
        &self.0.bucket
    }

    /// Makes the entry of a sandbox show Postgres as it is now, or later.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub(crate) async fn refresh(&self, sandbox_id: Uuid, traceparent: &str) -> Result<Standing, BuildError> {
        self.refresh_at_least(sandbox_id, traceparent, 0).await
    }

    /// As [`Self::refresh`]; an entry of a lower sequence than `at_least` is written anew even if it says the same.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub(crate) async fn refresh_at_least(
        &self,
        sandbox_id: Uuid,
        traceparent: &str,
        at_least: u64,
    ) -> Result<Standing, BuildError> {
        let begun = Instant::now();
        let span = tracing::info_span!("build", sandbox = %sandbox_id);
        telemetry::continue_trace(&span, traceparent);
        let ended = self.run(sandbox_id, traceparent, at_least).instrument(span).await;
        let outcome = ended.as_ref().map_or(Outcome::Failed, |(_, outcome)| *outcome);
        self.metrics().built(outcome, begun.elapsed());
        ended.map(|(standing, _)| standing)
    }

    /// The epoch of a sandbox's entry, if it has one.
    ///
    /// # Errors
    /// The bucket cannot be read now.
    pub(crate) async fn standing_epoch(&self, sandbox_id: Uuid) -> Result<Option<u64>, ReadError> {
        Ok(self.read(&sandbox_id.to_string()).await?.standing.map(|entry| entry.epoch))
    }

    /// The inputs of a sandbox's configuration as they are now, or later; none if it is gone.
    ///
    /// # Errors
    /// `Store`, `Stopping`.
    pub(crate) async fn inputs(&self, sandbox_id: Uuid) -> Result<Option<Inputs>, BuildError> {
        Ok(self.drawn(sandbox_id).await?.inputs)
    }

    /// The same by the sandbox's name, with the rights of who asks.
    ///
    /// # Errors
    /// `Store`, `Stopping`.
    pub(crate) async fn inputs_by_name(&self, asked: Named) -> Result<Seen<Option<Inputs>>, BuildError> {
        Ok(self.0.inputs_by_name.ask(asked).await.ok_or(BuildError::Stopping)??)
    }

    /// Composes what was read, without touching any entry: for polls.
    ///
    /// # Errors
    /// `Credential`.
    pub(crate) fn compose(&self, read: Inputs) -> Result<Composed, BuildError> {
        let now = read.now;
        Ok(compose(inputs(read, &self.0.credentials)?, &self.0.deployment, now))
    }

    async fn drawn(&self, sandbox_id: Uuid) -> Result<Drawn, BuildError> {
        Ok(self.0.inputs.ask(sandbox_id).await.ok_or(BuildError::Stopping)??)
    }

    async fn run(&self, sandbox_id: Uuid, traceparent: &str, at_least: u64) -> Result<(Standing, Outcome), BuildError> {
        for _ in 0..ATTEMPTS {
            match self.attempt(sandbox_id, traceparent, at_least).await {
                // Unknown: whether it was stored shows when the entry is read again.
                Err(BuildError::Write(UpdateError::Conflict | UpdateError::Unknown)) => self.metrics().conflict(),
                ended => return ended,
            }
        }
        Err(BuildError::Contended)
    }

    /// One round. The order is what makes accepted entries rise: entry, then sequence, then inputs.
    async fn attempt(
        &self,
        sandbox_id: Uuid,
        traceparent: &str,
        at_least: u64,
    ) -> Result<(Standing, Outcome), BuildError> {
        let key = sandbox_id.to_string();
        let read = self.read(&key).await?;
        let Drawn { sequence, inputs } = self.drawn(sandbox_id).await?;
        let Some(found) = inputs else { return self.purge(&key, read).await };
        let (epoch, workspace_id, generation) = (found.epoch, found.sandbox.workspace_id, found.sandbox.generation);

        let snapshot = Snapshot::new(self.compose(found)?, &self.0.keys);
        let version = snapshot.version(epoch, sequence, at_least);
        let step = decide(read.standing.as_ref(), version)?;
        if let (Step::Keep, Some(standing)) = (step, read.standing) {
            return Ok((Standing::Entry { entry: Box::new(standing), generation }, Outcome::Equal));
        }
        let broken = snapshot.is_broken();
        let place = Place { epoch, sequence, workspace_id, sandbox_id, traceparent };
        let entry = Box::new(snapshot.into_entry(&self.0.keys, place));
        self.0.bucket.update(&key, entry.encode_to_vec().into(), read.revision).await.map_err(BuildError::Write)?;
        if broken {
            self.metrics().not_admitted();
        }
        Ok((Standing::Entry { entry, generation }, Outcome::Written))
    }

    async fn read(&self, key: &str) -> Result<Read, ReadError> {
        let entry = self.0.bucket.read_from_leader(key).await?;
        let standing = entry.value.and_then(|value| {
            SnapshotEntry::decode(value)
                .inspect_err(|error| tracing::error!(key, %error, "an entry does not decode and is replaced"))
                .ok()
        });
        Ok(Read { standing, revision: entry.revision })
    }

    async fn purge(&self, key: &str, read: Read) -> Result<(Standing, Outcome), BuildError> {
        let epoch = self.0.database.epoch().await?;
        if farewell(read.standing.as_ref(), epoch)? == Farewell::Purge {
            self.0.bucket.purge(key, read.revision).await.map_err(BuildError::Write)?;
        }
        Ok((Standing::Gone, Outcome::Purged))
    }
}
