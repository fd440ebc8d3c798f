//! Publishes marks (D4): those of the transactions that this replica committed at once, and those that anyone left
//! behind twice a second. Overlap is harmless: a mark says which object changed, never how.

pub mod batch;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use roadstead_bus::Bus;
use roadstead_store::Database;
use roadstead_store::row::OutboxRow;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use batch::Batch;

/// Commits whose marks wait here for the relay. What does not fit is found by the poll.
const QUEUE: usize = 4096;
/// Commits that are published together at most.
const TOGETHER: usize = 256;
/// Batches that are on their way at a time.
const BATCHES: usize = 4;
const POLL_EVERY: Duration = Duration::from_millis(500);
/// Marks that one poll takes on.
const POLL_ROWS: u32 = 1000;
/// How often the backlog is measured.
const MEASURE_EVERY: u32 = 10;

/// Where commits hand over their marks. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Marks(mpsc::Sender<Vec<OutboxRow>>);

impl Marks {
    /// Hands over the marks of a commit. Never waits: what has no room is published by a poll half a second later.
    pub fn committed(&self, rows: Vec<OutboxRow>) {
        if !rows.is_empty() && self.0.try_send(rows).is_err() {
            tracing::debug!("the relay is behind; the poll takes over");
        }
    }
}

/// The relay of this replica.
#[derive(Debug)]
pub struct Relay {
    publisher: Publisher,
    committed: mpsc::Receiver<Vec<OutboxRow>>,
}

/// Publishes batches and deletes their rows.
#[derive(Clone, Debug)]
pub struct Publisher {
    bus: Bus,
    database: Database,
    metrics: Arc<Metrics>,
}

impl Relay {
    /// A relay and the way to it.
    #[must_use]
    pub fn new(bus: Bus, database: Database, metrics: Arc<Metrics>) -> (Marks, Self) {
        let (sender, committed) = mpsc::channel(QUEUE);
        (Marks(sender), Self { publisher: Publisher { bus, database, metrics }, committed })
    }

    /// Publishes what this replica committed, until `stop`; then what is still waiting, once.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut working = JoinSet::new();
        let mut commits = Vec::with_capacity(TOGETHER);
        loop {
            let full = working.len() >= BATCHES;
            tokio::select! {
                biased;
                _ = working.join_next(), if full => {}
                taken = self.committed.recv_many(&mut commits, TOGETHER), if !full => {
                    if taken == 0 {
                        break;
                    }
                    let (publisher, batch) = (self.publisher.clone(), Batch::of(commits.drain(..).flatten()));
                    working.spawn(async move { publisher.publish(batch).await });
                }
                () = stop.cancelled(), if !self.committed.is_closed() => self.committed.close(),
            }
        }
        working.join_all().await;
    }

    /// Who else can publish: for the poll.
    #[must_use]
    pub fn publisher(&self) -> Publisher {
        self.publisher.clone()
    }
}

impl Publisher {
    /// Publishes what was left behind, twice a second, until `stop`.
    pub async fn poll(self, stop: CancellationToken) {
        let mut due = tokio::time::interval(POLL_EVERY);
        due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for round in 0_u32.. {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = due.tick() => {}
            }
            if round % MEASURE_EVERY == 0 {
                self.measure().await;
            }
            // Without a broker every publish would only wait for its time-out.
            while self.bus.is_connected() && !stop.is_cancelled() {
                match self.database.left_behind(POLL_ROWS).await {
                    Ok(rows) if rows.is_empty() => break,
                    Ok(rows) => {
                        let (found, full) = (rows.len(), rows.len() == POLL_ROWS as usize);
                        let done = self.publish(Batch::of(rows)).await;
                        tracing::info!(found, done, "published marks that were left behind");
                        if !full || done == 0 {
                            break;
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot look for marks that were left behind");
                        break;
                    }
                }
            }
        }
    }

    /// Publishes a batch, awaits the broker's acks and deletes the rows whose messages are stored; how many those are.
    pub async fn publish(&self, batch: Batch) -> usize {
        let stored = join_all(batch.messages().map(|message| async move {
            match self.bus.enqueue(message.subject.clone(), message.payload.clone(), None).await {
                Ok(()) => true,
                Err(error) => {
                    tracing::debug!(subject = message.subject, %error, "a mark was not stored; it stays in the outbox");
                    false
                }
            }
        }))
        .await;
        let done = batch.settled(&stored);
        if done.is_empty() {
            return 0;
        }
        let count = done.len();
        match self.database.delete_marks(done).await {
            // Another replica's poll may have published some of them as well, and counts what it deletes.
            Ok(deleted) => _ = self.metrics.marks.inc_by(deleted),
            Err(error) => tracing::warn!(%error, "published marks stay in the outbox and are published again"),
        }
        count
    }

    async fn measure(&self) {
        let (count, oldest) = match tokio::try_join!(self.database.waiting_marks(), self.database.oldest_mark()) {
            Ok(backlog) => backlog,
            Err(error) => return tracing::debug!(%error, "cannot measure the backlog of marks"),
        };
        self.metrics.marks_waiting.set(i64::try_from(count).unwrap_or(i64::MAX));
        self.metrics.marks_oldest_seconds.set(oldest.as_secs_f64());
    }
}
