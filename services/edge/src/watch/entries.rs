//! Reads of sandboxes by id, for the hub: one request at a time, for as many sandboxes as wait.
//!
//! Whoever asks joins a request that has not been sent yet, never one that has: its answer may be older than the
//! question.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prost::Message as _;
use roadstead_bus::Bus;
use roadstead_door::status::is_final;
use roadstead_proto::internal::read_reply::Outcome;
use roadstead_proto::internal::{ReadReply, SandboxEntriesReply, SandboxEntriesRequest};
use roadstead_proto::subject;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::hub::Hub;
use super::shown::Shown;

/// Sandboxes in one request; in one after a failure half as many as in that: what cannot be read keeps no other back.
const BATCH: usize = 100;
const PATIENCE: Duration = Duration::from_secs(4);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What is still to be read. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    wanted: Mutex<Wanted>,
    more: Notify,
}

#[derive(Debug)]
struct Wanted {
    waiters: HashMap<Uuid, Waiters>,
    /// Each that is wanted, in the order in which they are asked for.
    order: VecDeque<Uuid>,
    /// Sandboxes in the next request.
    most: usize,
}

type Waiters = Vec<oneshot::Sender<()>>;

/// What one request asks for, and who waits for it.
pub(super) type Batch = Vec<(Uuid, Waiters)>;

/// The answer did not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reader of entries has stopped")]
pub(crate) struct Stopped;

impl Entries {
    /// Has these read again; nobody waits.
    pub(crate) fn refresh(&self, ids: impl IntoIterator<Item = Uuid>) {
        let mut wanted = self.lock();
        for id in ids {
            wanted.of(id);
        }
        drop(wanted);
        self.0.more.notify_one();
    }

    /// Waits until the hub was offered a state of this sandbox that was read after this call.
    ///
    /// # Errors
    ///
    /// If nothing is read any more.
    pub(crate) async fn read(&self, id: Uuid) -> Result<(), Stopped> {
        let (done, read) = oneshot::channel();
        self.lock().of(id).push(done);
        self.0.more.notify_one();
        read.await.map_err(|_| Stopped)
    }

    /// Reads what is wanted until it is told to stop.
    pub(crate) async fn run(self, bus: Bus, hub: Hub, stop: CancellationToken) {
        let reading = async {
            let mut pause = FIRST_PAUSE;
            loop {
                let batch = self.take();
                if batch.is_empty() {
                    self.0.more.notified().await;
                    continue;
                }
                match request(&bus, &batch).await {
                    Ok(reply) => {
                        pause = FIRST_PAUSE;
                        self.settle(batch, reply, &hub);
                    }
                    Err(reason) => {
                        tracing::warn!(reason, sandboxes = batch.len(), "cannot read watched sandboxes; trying on");
                        self.failed(batch);
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                }
            }
        };
        stop.run_until_cancelled(reading).await;
        *self.lock() = Wanted::default();
    }

    /// Takes the next batch: what is wanted from here on is a question for a later one.
    pub(super) fn take(&self) -> Batch {
        let Wanted { waiters, order, most } = &mut *self.lock();
        let most = order.len().min(*most);
        order.drain(..most).filter_map(|id| waiters.remove_entry(&id)).collect()
    }

    /// Hands out what was read, in the order it was asked for; what the reply left out is asked for again.
    pub(super) fn settle(&self, batch: Batch, reply: SandboxEntriesReply, hub: &Hub) {
        let mut entries = reply.entries.into_iter();
        let mut left_out = Vec::new();
        for (id, waiters) in batch {
            let Some(entry) = entries.next() else {
                left_out.push((id, waiters));
                continue;
            };
            hub.offer(id, Shown::of(entry));
            for waiter in waiters {
                // A stream that has gone in the meantime needs no answer.
                let _gone = waiter.send(());
            }
        }
        let mut wanted = self.lock();
        wanted.most = (wanted.most * 2).min(BATCH);
        wanted.put_back(left_out);
    }

    /// There was no answer, or none that can be used.
    pub(super) fn failed(&self, batch: Batch) {
        let mut wanted = self.lock();
        wanted.most = (batch.len() / 2).max(1);
        wanted.put_back(batch);
    }

    fn lock(&self) -> MutexGuard<'_, Wanted> {
        self.0.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Wanted {
    fn default() -> Self {
        Self { waiters: HashMap::new(), order: VecDeque::new(), most: BATCH }
    }
}

impl Wanted {
    /// Has these asked for again, after all others.
    fn put_back(&mut self, batch: Batch) {
        for (id, mut waiters) in batch {
            waiters.retain(|waiter| !waiter.is_closed());
            self.of(id).extend(waiters);
        }
    }

    /// Who waits for this one, which is wanted from now on.
    fn of(&mut self, id: Uuid) -> &mut Waiters {
        let Self { waiters, order, .. } = self;
        waiters.entry(id).or_insert_with(|| {
            order.push_back(id);
            Waiters::new()
        })
    }
}

async fn request(bus: &Bus, batch: &[(Uuid, Waiters)]) -> Result<SandboxEntriesReply, &'static str> {
    let sandbox_ids = batch.iter().map(|(id, _)| id.to_string()).collect();
    let request = SandboxEntriesRequest { sandbox_ids }.encode_to_vec();
    let reply = bus.read(subject::READ_SANDBOX_ENTRIES, request.into(), PATIENCE, is_final).await.map_err(|error| {
        tracing::debug!(%error, "no entries");
        "no answer"
    })?;
    let outcome = ReadReply::decode(reply).map_err(|_| "the answer cannot be read")?.outcome;
    let Some(Outcome::Response(reply)) = outcome else { return Err("the question was refused") };
    let reply = SandboxEntriesReply::decode(reply).map_err(|_| "the answer cannot be read")?;
    if reply.entries.is_empty() { Err("the answer is empty") } else { Ok(reply) }
}

#[cfg(test)]
mod tests {
    use roadstead_proto::internal::SandboxEntry;

    use super::*;

    fn reply(versions: &[u64]) -> SandboxEntriesReply {
        let entry = |&version: &u64| SandboxEntry {
            epoch: 1,
            version,
            sandbox: Some(Default::default()),
            ..Default::default()
        };
        SandboxEntriesReply { entries: versions.iter().map(entry).collect() }
    }

    /// Asks, and gives what the asker waits for.
    fn ask(entries: &Entries, id: Uuid) -> oneshot::Receiver<()> {
        let (done, read) = oneshot::channel();
        entries.lock().of(id).push(done);
        read
    }

    #[test]
    fn a_question_joins_a_request_that_was_not_sent_and_no_other() {
        let (entries, hub, id) = (Entries::default(), Hub::default(), Uuid::from_u128(1));
        let mut watcher = hub.enter(id);
        let (mut first, mut second) = (ask(&entries, id), ask(&entries, id));
        let batch = entries.take();
        let mut late = ask(&entries, id);
        entries.settle(batch, reply(&[4]), &hub);
        assert!(first.try_recv().is_ok() && second.try_recv().is_ok());
        assert!(late.try_recv().is_err(), "its question came after the request");
        assert_eq!(watcher.newest().map(|shown| shown.version.version), Some(4));
        assert_eq!(entries.take().len(), 1);
    }

    #[test]
    fn what_a_reply_leaves_out_is_asked_for_again() {
        let (entries, hub) = (Entries::default(), Hub::default());
        entries.refresh((1..=3).map(Uuid::from_u128));
        let batch = entries.take();
        let left_out = batch[1..].iter().map(|(id, _)| *id).collect::<std::collections::HashSet<_>>();
        entries.settle(batch, reply(&[1]), &hub);
        assert_eq!(entries.take().into_iter().map(|(id, _)| id).collect::<std::collections::HashSet<_>>(), left_out);
    }

    #[test]
    fn a_batch_is_bounded_and_nothing_is_forgotten() {
        let entries = Entries::default();
        entries.refresh((0..250).map(Uuid::from_u128));
        let sizes = [entries.take().len(), entries.take().len(), entries.take().len(), entries.take().len()];
        assert_eq!(sizes, [100, 100, 50, 0]);
    }

    #[test]
    fn what_cannot_be_read_lets_others_pass() {
        let (entries, hub, bad) = (Entries::default(), Hub::default(), Uuid::from_u128(7));
        entries.refresh((1..=20).map(Uuid::from_u128));
        let mut requests = 0;
        while entries.lock().order.iter().any(|id| *id != bad) {
            let batch = entries.take();
            requests += 1;
            if batch.iter().any(|(id, _)| *id == bad) {
                entries.failed(batch);
            } else {
                let versions = vec![1; batch.len()];
                entries.settle(batch, reply(&versions), &hub);
            }
        }
        assert!(requests < 20, "{requests} requests");
        assert_eq!(entries.take().into_iter().map(|(id, _)| id).collect::<Vec<_>>(), [bad]);
    }

    #[test]
    fn a_failed_request_is_repeated_for_those_who_still_wait() {
        let (entries, id) = (Entries::default(), Uuid::from_u128(1));
        let (waits, gone) = (ask(&entries, id), ask(&entries, id));
        drop(gone);
        let batch = entries.take();
        entries.failed(batch);
        assert_eq!(entries.take()[0].1.len(), 1);
        drop(waits);
    }
}
