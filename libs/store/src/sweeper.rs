//! One sweeper per bucket (D4): whoever holds the bucket's advisory lock.

use roadstead_proto::bucket::Bucket;

use crate::database::Database;
use crate::error::StoreError;
use crate::fields::only;
use crate::flight::{Flight, Step};
use crate::lease::Lease;
use crate::parameter::value;

const TRY: &str = "SELECT pg_try_advisory_lock($1)";
const ASK: &str = "SELECT true";

/// The right to sweep a bucket, held by a connection of its own: it ends with the connection, so with the process, and
/// when this is dropped.
#[derive(Debug)]
pub struct Sweeper {
    lease: Lease,
}

impl Database {
    /// The right to sweep `bucket`, if nobody else has it.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn sweeper(&self, bucket: Bucket) -> Result<Option<Sweeper>, StoreError> {
        let mut lease = self.lease().await?;
        lease.keep_from_pool();
        let sweeper = Sweeper { lease };
        Ok(sweeper.ask(Step::new(TRY, [value(lock(bucket))])).await?.then_some(sweeper))
    }
}

impl Sweeper {
    /// Whether the right is still held. It was lost if the connection was.
    pub async fn is_held(&self) -> bool {
        self.ask(Step::plain(ASK)).await.unwrap_or(false)
    }

    async fn ask(&self, step: Step) -> Result<bool, StoreError> {
        let mut flight = Flight::default();
        let slot = flight.add(step);
        let mut answers = self.lease.ask(flight).await.map_err(StoreError::of)?;
        Ok(only(&answers.take(slot), |fields| fields.take())?)
    }
}

/// Names of our locks begin with a number of ours; migrations use another.
const fn lock(bucket: Bucket) -> i64 {
    const SWEEPERS: i64 = 0x7277_6565_7000;
    match bucket {
        Bucket::Snapshots => SWEEPERS + 1,
        Bucket::Sandboxes => SWEEPERS + 2,
        Bucket::Rights => SWEEPERS + 3,
    }
}
