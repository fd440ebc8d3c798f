//! The broker of the model: a bucket with compare-and-set, and streams of marks that keep one message for each subject.

use std::collections::BTreeMap;

use roadstead_bus::bucket::{Incarnation, Revision};
use roadstead_proto::internal::SnapshotEntry;

/// What waits for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    One(u128),
    Fleet(u128),
    /// A change of all sandboxes, which is to be expanded.
    Global,
}

/// A message that waits, or is with a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) subject: Subject,
    pub(super) sequence: u64,
}

/// What is lost with the broker's folder.
#[derive(Clone, Debug, Default)]
struct Folder {
    created: u64,
    last: u64,
    entries: BTreeMap<u128, (Revision, Option<SnapshotEntry>)>,
    published: u64,
    /// The newest message of each subject, and whether it was delivered.
    waiting: BTreeMap<Subject, (u64, bool)>,
}

#[derive(Debug, Default)]
pub(super) struct Broker {
    folder: Folder,
    saved: Folder,
    lives: u64,
}

impl Broker {
    pub(super) fn save(&mut self) {
        self.saved = self.folder.clone();
    }

    pub(super) fn roll_back(&mut self) {
        self.folder = self.saved.clone();
    }

    pub(super) fn wipe(&mut self) {
        self.lives += 1;
        self.folder = Folder { created: self.lives, ..Folder::default() };
        self.saved = self.folder.clone();
    }

    pub(super) fn incarnation(&self) -> Incarnation {
        Incarnation { created: self.folder.created.to_string(), last: Revision(self.folder.last) }
    }

    pub(super) fn read(&self, key: u128) -> (Revision, Option<SnapshotEntry>) {
        self.folder.entries.get(&key).cloned().unwrap_or((Revision::NONE, None))
    }

    /// The keys that hold a value or a mark of its end.
    pub(super) fn keys(&self) -> Vec<u128> {
        self.folder.entries.keys().copied().collect()
    }

    /// Stores or purges, if the key is at `expected`.
    pub(super) fn update(&mut self, key: u128, value: Option<SnapshotEntry>, expected: Revision) -> bool {
        if self.read(key).0 != expected {
            return false;
        }
        self.folder.last += 1;
        self.folder.entries.insert(key, (Revision(self.folder.last), value));
        true
    }

    /// A message takes the place of one of its subject that waits, or that somebody works on.
    pub(super) fn publish(&mut self, subject: Subject) {
        self.folder.published += 1;
        self.folder.waiting.insert(subject, (self.folder.published, false));
    }

    /// Delivers the next message that `wanted` is true of.
    pub(super) fn deliver(&mut self, wanted: impl Fn(Subject) -> bool) -> Option<Message> {
        let found = self.folder.waiting.iter_mut().find(|(subject, (_, taken))| !*taken && wanted(**subject));
        let (subject, (sequence, taken)) = found?;
        *taken = true;
        Some(Message { subject: *subject, sequence: *sequence })
    }

    pub(super) fn ack(&mut self, message: Message) {
        if self.folder.waiting.get(&message.subject).is_some_and(|(sequence, _)| *sequence == message.sequence) {
            self.folder.waiting.remove(&message.subject);
        }
    }

    /// Puts a message back, or finds that its worker gave no sign of life: it is delivered again.
    pub(super) fn put_back(&mut self, message: Message) {
        if let Some((sequence, taken)) = self.folder.waiting.get_mut(&message.subject) {
            *taken &= *sequence != message.sequence;
        }
    }

    /// All workers gave no sign of life.
    pub(super) fn redeliver(&mut self) {
        for (_, taken) in self.folder.waiting.values_mut() {
            *taken = false;
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.folder.waiting.is_empty()
    }
}
