//! The sweeper: compares every entry with Postgres and repairs it. One replica at a time, slowly; at full speed only
//! after the broker has lost or rolled back the bucket, or the database was restored.

pub(crate) mod due;
pub(crate) mod life;

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use roadstead_bus::Bus;
use roadstead_bus::bucket::ReadError;
use roadstead_proto::bucket::Bucket as Name;
use roadstead_store::StoreError;
use roadstead_store::sweeper::Sweeper;
use tokio::sync::watch;
use tokio::time::{Instant, interval, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::build::Builder;
use due::{Due, Pace};
use life::{Life, Seen};

/// How often the bucket's life is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a replica waits before it asks again for the right to sweep.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// Rest between two passes. Longer than any build takes ([`Pace::Late`]).
const REST: Duration = Duration::from_secs(30);
/// Sandboxes per page.
const PAGE: u32 = 500;
/// Builds at a time at full speed.
const AT_FULL_SPEED: usize = 8;

/// One pass: every sandbox that Postgres has, then every key that none of them has.
struct Pass<'a> {
    builder: &'a Builder,
    right: &'a Sweeper,
    /// One build each such time; none: as fast as it goes.
    each: Option<Duration>,
    /// Every entry must have at least this sequence afterwards; 0 demands nothing.
    at_least: u64,
}

/// Why a pass did not come to its end.
#[derive(Debug, thiserror::Error)]
enum SweepError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the right to sweep was lost")]
    NotHeld,
    #[error("{0} snapshots could not be built")]
    Unbuilt(usize),
}

/// Looks at bucket and database until `stop` and counts in `losses` how often either was lost or rolled back.
pub(crate) async fn look(bus: Bus, builder: Builder, losses: watch::Sender<u64>, stop: CancellationToken) {
    let mut life = Life::default();
    let mut reconnects = bus.reconnects();
    let mut tick = interval(LOOK_EVERY);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            // Soon after a reconnect, while what was lost has not been written anew.
            Ok(()) = reconnects.changed() => {}
            _ = tick.tick() => {}
        }
        let epoch = match builder.database().epoch().await {
            Ok(epoch) => epoch,
            Err(error) => {
                tracing::debug!(%error, "the database's epoch cannot be looked at");
                continue;
            }
        };
        // Nobody may have been there to see the epoch rise.
        let former = if life.is_unknown() {
            match stop.run_until_cancelled(any_of_former_life(&builder, epoch)).await {
                Some(Ok(former)) => former,
                Some(Err(error)) => {
                    tracing::debug!(%error, "the entries cannot be looked at");
                    continue;
                }
                None => return,
            }
        } else {
            false
        };
        match builder.bucket().incarnation().await {
            Ok(incarnation) if life.see(&incarnation, epoch, former) == Seen::Loss => {
                tracing::warn!("broker or database lost or rolled back snapshots; all are compared at full speed");
                builder.metrics().lost();
                losses.send_modify(|count| *count += 1);
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "the bucket of snapshots cannot be looked at"),
        }
    }
}

/// Whether an entry is of an earlier epoch than the database.
async fn any_of_former_life(builder: &Builder, epoch: u64) -> Result<bool, SweepError> {
    let entries = keys(builder).await?.into_iter().map(|id| builder.standing_epoch(id));
    let mut epochs = stream::iter(entries).buffer_unordered(AT_FULL_SPEED);
    while let Some(of) = epochs.next().await {
        if of?.is_some_and(|of| of < epoch) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Sweeps while this replica has the right to, until `stop`. `rate` is in builds per second.
pub(crate) async fn run(builder: Builder, losses: watch::Receiver<u64>, rate: u32, stop: CancellationToken) {
    let mut sweep = Sweep { builder, losses, due: Due::default(), each: Duration::from_secs(1) / rate.max(1) };
    let work = async {
        loop {
            match sweep.builder.database().sweeper(Name::Snapshots).await {
                Ok(Some(right)) => sweep.while_held(&right).await,
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "the right to sweep could not be asked for"),
            }
            sleep(ASK_AGAIN).await;
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = work => {}
    }
}

struct Sweep {
    builder: Builder,
    /// Changed while a loss has not been swept after.
    losses: watch::Receiver<u64>,
    due: Due,
    /// Of a slow pass: the time for each build.
    each: Duration,
}

impl Sweep {
    /// Pass after pass, until the right is lost.
    async fn while_held(&mut self, right: &Sweeper) {
        let mut failures = 0;
        loop {
            match self.turn(right).await {
                Ok(()) => {
                    failures = 0;
                    self.rest().await;
                }
                Err(SweepError::NotHeld) => return,
                Err(error) => {
                    failures += 1;
                    tracing::warn!(%error, "a sweep over the snapshots did not come to its end");
                    sleep(crate::pause::after(failures)).await;
                }
            }
        }
    }

    /// One pass: at full speed if something was lost, else slowly, until something is.
    async fn turn(&mut self, right: &Sweeper) -> Result<(), SweepError> {
        let pace = self.due.next(self.losses.has_changed().unwrap_or(false));
        let swept = if pace == Pace::Full {
            // In front of the draw: what is lost while that is under way needs a number of its own.
            self.losses.mark_unchanged();
            let swept = self.pass(pace, right).await;
            if swept.is_err() {
                self.losses.mark_changed();
            }
            swept
        } else {
            let mut losses = self.losses.clone();
            tokio::select! {
                swept = self.pass(pace, right) => swept,
                () = lost(&mut losses) => return Ok(()),
            }
        };
        self.due.ended(pace, swept.is_ok());
        swept
    }

    async fn pass(&mut self, pace: Pace, right: &Sweeper) -> Result<(), SweepError> {
        let losses = *self.losses.borrow();
        let at_least = match self.due.at_least(pace, losses) {
            Some(at_least) => at_least,
            None => {
                let drawn = self.builder.database().next_snapshot_sequence().await?;
                self.due.demands(pace, losses, drawn);
                drawn
            }
        };
        let each = (pace != Pace::Full).then_some(self.each);
        Pass { builder: &self.builder, right, each, at_least }.run().await
    }

    async fn rest(&mut self) {
        tokio::select! {
            () = sleep(REST) => {}
            () = lost(&mut self.losses) => {}
        }
    }
}

/// Waits for a loss, without counting it as swept after.
async fn lost(losses: &mut watch::Receiver<u64>) {
    if losses.changed().await.is_ok() {
        losses.mark_changed();
    } else {
        std::future::pending::<()>().await;
    }
}

impl Pass<'_> {
    async fn run(&self) -> Result<(), SweepError> {
        let mut left_over = keys(self.builder).await?;
        let mut after = Uuid::nil();
        let mut unbuilt = 0;
        loop {
            self.check().await?;
            let page = self.builder.database().all_sandboxes(after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.sandbox_id;
            let ids = page.iter().map(|place| place.sandbox_id).collect::<Vec<_>>();
            for id in &ids {
                left_over.remove(id);
            }
            unbuilt += self.refresh(ids).await;
        }
        let gone = left_over.into_iter().collect::<Vec<_>>();
        for ids in gone.chunks(PAGE as usize) {
            self.check().await?;
            unbuilt += self.refresh(ids.to_vec()).await;
        }
        if unbuilt > 0 {
            return Err(SweepError::Unbuilt(unbuilt));
        }
        self.builder.metrics().swept();
        Ok(())
    }

    async fn check(&self) -> Result<(), SweepError> {
        if self.right.is_held().await { Ok(()) } else { Err(SweepError::NotHeld) }
    }

    /// Refreshes these entries; how many it could not.
    async fn refresh(&self, ids: Vec<Uuid>) -> usize {
        let one = |id| async move {
            match self.builder.refresh_at_least(id, "", self.at_least).await {
                Ok(_) => 0,
                Err(error) => {
                    tracing::debug!(sandbox = %id, %error, "a snapshot could not be compared");
                    1
                }
            }
        };
        let Some(each) = self.each else {
            let builds = stream::iter(ids).map(one).buffer_unordered(AT_FULL_SPEED);
            return builds.fold(0, |sum, failed| async move { sum + failed }).await;
        };
        let mut failed = 0;
        for id in ids {
            let next = Instant::now() + each;
            failed += one(id).await;
            sleep_until(next).await;
        }
        failed
    }
}

/// The sandboxes that the bucket has keys of.
async fn keys(builder: &Builder) -> Result<BTreeSet<Uuid>, SweepError> {
    let mut ids = BTreeSet::new();
    let mut offset = 0;
    loop {
        let page = builder.bucket().keys(offset).await?;
        if page.is_empty() {
            return Ok(ids);
        }
        offset += page.len();
        ids.extend(page.iter().filter_map(|key| Uuid::try_parse(key).ok()));
    }
}
