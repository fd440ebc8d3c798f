//! A builder of the model, which does the steps of `build.rs` one at a time and decides by [`crate::entry`].

use roadstead_bus::bucket::Revision;
use roadstead_proto::internal::SnapshotEntry;

use super::broker::{Broker, Message};
use super::database::{Content, Database};
use crate::entry::{Farewell, Step, Version, WrongDatabase, decide, farewell};

/// As many as in `build.rs`.
const ATTEMPTS: usize = 10;

/// A build that is under way.
#[derive(Clone, Debug)]
pub(super) struct Build {
    pub(super) id: u128,
    /// The mark it is for.
    pub(super) mark: Option<Message>,
    pub(super) at_least: u64,
    /// How often anything had been lost when it began to read.
    pub(super) life: u64,
    /// How many changes the sandbox had seen when it was asked for.
    pub(super) age: usize,
    attempts: usize,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    Begun,
    Read(Read),
    Drawn(Read, u64),
    /// There is no such sandbox.
    Gone(Read),
    /// Waits for the broker.
    Writing(Write),
}

type Read = (Revision, Option<SnapshotEntry>);

/// A write on its way to the broker.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Write {
    pub(super) id: u128,
    pub(super) value: Option<SnapshotEntry>,
    pub(super) expected: Revision,
    pub(super) life: u64,
    /// How many changes the sandbox had seen when it was read.
    pub(super) age: usize,
}

/// What a step comes to.
#[derive(Debug)]
pub(super) enum Did {
    More,
    Sends(Box<Write>),
    /// An entry stands that says this; None: there is none.
    Stands(Option<Content>),
    Failed,
}

impl Build {
    pub(super) fn begin(id: u128, mark: Option<Message>, at_least: u64, life: u64, database: &Database) -> Self {
        Self { id, mark, at_least, life, age: database.age(id), attempts: 0, stage: Stage::Begun }
    }

    pub(super) fn step(&mut self, database: &mut Database, broker: &Broker, life: u64) -> Did {
        match std::mem::replace(&mut self.stage, Stage::Begun) {
            Stage::Begun if self.attempts == ATTEMPTS => return Did::Failed,
            Stage::Begun => {
                self.attempts += 1;
                self.life = life;
                self.stage = Stage::Read(broker.read(self.id));
            }
            Stage::Read(read) => self.stage = Stage::Drawn(read, database.draw()),
            Stage::Drawn(read, sequence) => {
                let Some(content) = database.content(self.id) else {
                    self.stage = Stage::Gone(read);
                    return Did::More;
                };
                let entry = entry(database.epoch, sequence, content);
                return self.built(read, entry, content, database.age(self.id));
            }
            Stage::Gone(read) => match farewell(read.1.as_ref(), database.epoch) {
                Ok(Farewell::Nothing) => return Did::Stands(None),
                Ok(Farewell::Purge) => return self.send(None, read.0, database.age(self.id)),
                Err(WrongDatabase::Epoch { .. } | WrongDatabase::Sequence) => return Did::Failed,
            },
            Stage::Writing(write) => self.stage = Stage::Writing(write),
        }
        Did::More
    }

    fn built(&mut self, read: Read, entry: SnapshotEntry, content: Content, age: usize) -> Did {
        let version = Version {
            epoch: entry.epoch,
            sequence: entry.sequence,
            config_digest: &entry.config_digest,
            environment_digest: &entry.environment_digest,
            at_least: self.at_least,
        };
        match decide(read.1.as_ref(), version) {
            Ok(Step::Keep) => Did::Stands(Some(content)),
            Ok(Step::Write) => self.send(Some(entry), read.0, age),
            Err(WrongDatabase::Epoch { .. } | WrongDatabase::Sequence) => Did::Failed,
        }
    }

    fn send(&mut self, value: Option<SnapshotEntry>, expected: Revision, age: usize) -> Did {
        let write = Write { id: self.id, value, expected, life: self.life, age };
        self.stage = Stage::Writing(write.clone());
        Did::Sends(Box::new(write))
    }

    /// The broker says what became of a write, if it is this one's.
    pub(super) fn told(&mut self, write: &Write, stored: bool) -> Did {
        match &self.stage {
            Stage::Writing(own) if own == write && stored => Did::Stands(write.value.as_ref().map(shown)),
            Stage::Writing(own) if own == write => {
                self.stage = Stage::Begun;
                Did::More
            }
            _ => Did::More,
        }
    }

    /// Nothing is heard of the write: it may be stored, now or later.
    pub(super) fn give_up(&mut self) {
        if matches!(self.stage, Stage::Writing(_)) {
            self.stage = Stage::Begun;
        }
    }
}

fn entry(epoch: u64, sequence: u64, (config, environment): Content) -> SnapshotEntry {
    SnapshotEntry {
        epoch,
        sequence,
        config_digest: vec![config].into(),
        environment_digest: vec![environment].into(),
        ..Default::default()
    }
}

/// What an entry says.
pub(super) fn shown(entry: &SnapshotEntry) -> Content {
    (entry.config_digest[0], entry.environment_digest[0])
}
