//! Whether what was just built replaces the entry that stands (D5), as a value.
//!
//! The loop reads the entry first, then draws a sequence, then reads Postgres. So whatever it builds is at least as
//! new as what it compares with, and the sequence is higher than that of any entry it has seen.

use roadstead_proto::internal::SnapshotEntry;

/// What identifies a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version<'a> {
    /// The database's epoch, as read with the inputs.
    pub(crate) epoch: u64,
    /// Drawn before the inputs were read.
    pub(crate) sequence: u64,
    pub(crate) config_digest: &'a [u8],
    pub(crate) environment_digest: &'a [u8],
    /// An entry of an equal content but a lower sequence than this is written anew; 0 asks for nothing.
    ///
    /// A builder that was under way when the bucket was lost can write after the loss, with a sequence that followers
    /// of the old bucket have passed. They would drop it, and equal content would never be written again; so the sweep
    /// after a loss draws a sequence first and demands it of every entry.
    pub(crate) at_least: u64,
}

/// What to do with a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The entry says the same: it stays, and is the answer.
    Keep,
    /// It becomes the entry, if that has not changed since it was read.
    Write,
}

/// What to do about a sandbox that Postgres does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Farewell {
    /// There is nothing to remove.
    Nothing,
    /// The entry goes, if it has not changed since it was read.
    Purge,
}

/// A database that cannot be the one the entry was built from. Nothing is written and nothing handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WrongDatabase {
    #[error("the database is at epoch {database}, an entry at {entry}: it is not the one that is in charge")]
    Epoch { database: u64, entry: u64 },
    #[error(
        "the sequence of snapshots went back: the database was restored or failed over without `roadstead recover`"
    )]
    Sequence,
}

/// Decides on a build.
///
/// # Errors
/// [`WrongDatabase`].
pub(crate) fn decide(standing: Option<&SnapshotEntry>, built: Version<'_>) -> Result<Step, WrongDatabase> {
    let Some(standing) = standing else { return Ok(Step::Write) };
    check_epoch(standing, built.epoch)?;
    let same = standing.epoch == built.epoch
        && standing.sequence >= built.at_least
        && standing.config_digest == built.config_digest
        && standing.environment_digest == built.environment_digest;
    if same {
        return Ok(Step::Keep);
    }
    if standing.epoch == built.epoch && standing.sequence >= built.sequence {
        return Err(WrongDatabase::Sequence);
    }
    Ok(Step::Write)
}

/// Decides on a sandbox that a database of this epoch does not have.
///
/// # Errors
/// [`WrongDatabase`].
pub(crate) fn farewell(standing: Option<&SnapshotEntry>, epoch: u64) -> Result<Farewell, WrongDatabase> {
    let Some(standing) = standing else { return Ok(Farewell::Nothing) };
    check_epoch(standing, epoch)?;
    Ok(Farewell::Purge)
}

fn check_epoch(standing: &SnapshotEntry, epoch: u64) -> Result<(), WrongDatabase> {
    if standing.epoch > epoch {
        return Err(WrongDatabase::Epoch { database: epoch, entry: standing.epoch });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(epoch: u64, sequence: u64, content: u8) -> SnapshotEntry {
        SnapshotEntry {
            epoch,
            sequence,
            config_digest: vec![content].into(),
            environment_digest: vec![content].into(),
            ..Default::default()
        }
    }

    fn step(standing: Option<&SnapshotEntry>, epoch: u64, sequence: u64, content: u8) -> Result<Step, WrongDatabase> {
        let digest = [content];
        decide(standing, Version { epoch, sequence, config_digest: &digest, environment_digest: &digest, at_least: 0 })
    }

    #[test]
    fn equal_content_stays_and_other_content_is_written() {
        assert_eq!(step(None, 1, 1, 1), Ok(Step::Write));
        assert_eq!(step(Some(&entry(1, 5, 1)), 1, 9, 1), Ok(Step::Keep));
        assert_eq!(step(Some(&entry(1, 5, 1)), 1, 9, 2), Ok(Step::Write));
        let digests = Version { epoch: 1, sequence: 9, config_digest: &[1], environment_digest: &[2], at_least: 0 };
        assert_eq!(decide(Some(&entry(1, 5, 1)), digests), Ok(Step::Write));
    }

    #[test]
    fn a_newer_epoch_is_written_whatever_the_sequence_and_an_older_one_never() {
        assert_eq!(step(Some(&entry(1, 500, 1)), 2, 3, 1), Ok(Step::Write));
        assert_eq!(step(Some(&entry(2, 1, 1)), 1, 500, 2), Err(WrongDatabase::Epoch { database: 1, entry: 2 }));
        assert_eq!(farewell(Some(&entry(2, 1, 1)), 1), Err(WrongDatabase::Epoch { database: 1, entry: 2 }));
    }

    #[test]
    fn a_sequence_that_went_back_is_never_written() {
        assert_eq!(step(Some(&entry(1, 5, 1)), 1, 5, 2), Err(WrongDatabase::Sequence));
    }

    #[test]
    fn what_is_gone_is_purged_once() {
        assert_eq!(farewell(None, 1), Ok(Farewell::Nothing));
        assert_eq!(farewell(Some(&entry(1, 5, 1)), 1), Ok(Farewell::Purge));
    }

    #[test]
    fn after_a_loss_an_equal_entry_of_before_is_written_anew() {
        let version =
            |at_least| Version { epoch: 1, sequence: 9, config_digest: &[1], environment_digest: &[1], at_least };
        assert_eq!(decide(Some(&entry(1, 5, 1)), version(6)), Ok(Step::Write));
        assert_eq!(decide(Some(&entry(1, 6, 1)), version(6)), Ok(Step::Keep));
    }

    /// A builder between two of its steps.
    #[derive(Clone, Debug, Default)]
    enum Builder {
        #[default]
        Idle,
        Read(Option<(u64, SnapshotEntry)>),
        Drawn(Option<(u64, SnapshotEntry)>, u64),
        Built(Option<(u64, SnapshotEntry)>, u64, u8),
    }

    /// Postgres and the bucket, as far as the loop sees them.
    #[derive(Debug, Default)]
    struct World {
        content: u8,
        sequence: u64,
        revision: u64,
        entry: Option<(u64, SnapshotEntry)>,
        /// Every entry that was ever accepted: sequence and content.
        accepted: Vec<(u64, u8)>,
    }

    impl World {
        fn draw(&mut self) -> u64 {
            self.sequence += 1;
            self.sequence
        }

        /// Lets one builder do its next step; tells whether it has finished a loop.
        fn advance(&mut self, builder: &mut Builder, at_least: u64) -> bool {
            *builder = match std::mem::take(builder) {
                Builder::Idle => Builder::Read(self.entry.clone()),
                Builder::Read(read) => Builder::Drawn(read, self.draw()),
                Builder::Drawn(read, sequence) => Builder::Built(read, sequence, self.content),
                Builder::Built(read, sequence, content) => return self.write(read, sequence, content, at_least),
            };
            false
        }

        fn write(&mut self, read: Option<(u64, SnapshotEntry)>, sequence: u64, content: u8, at_least: u64) -> bool {
            let digest = [content];
            let built = Version { epoch: 1, sequence, config_digest: &digest, environment_digest: &digest, at_least };
            if decide(read.as_ref().map(|(_, entry)| entry), built) == Ok(Step::Keep) {
                return true;
            }
            let expected = read.map(|(revision, _)| revision);
            if self.entry.as_ref().map(|(revision, _)| *revision) != expected {
                return false;
            }
            self.revision += 1;
            self.entry = Some((self.revision, entry(1, sequence, content)));
            self.accepted.push((sequence, content));
            true
        }

        fn run(&mut self, at_least: u64) {
            let mut builder = Builder::Idle;
            while !self.advance(&mut builder, at_least) {}
        }

        fn shown(&self) -> Option<(u64, u8)> {
            self.entry.as_ref().map(|(_, entry)| (entry.sequence, entry.config_digest[0]))
        }
    }

    #[derive(Clone, Debug)]
    enum Event {
        Commit,
        Lose,
        Step(usize),
    }

    fn events(rare: Event) -> impl Strategy<Value = Vec<Event>> {
        let event = prop_oneof![2 => Just(Event::Commit), 1 => Just(rare), 12 => (0..4usize).prop_map(Event::Step)];
        proptest::collection::vec(event, 0..200)
    }

    fn play(events: Vec<Event>) -> World {
        let mut world = World::default();
        let mut builders = [const { Builder::Idle }; 4];
        for event in events {
            match event {
                Event::Commit => world.content = world.content.saturating_add(1),
                Event::Lose => world.entry = None,
                Event::Step(at) => {
                    world.advance(&mut builders[at], 0);
                }
            }
        }
        world
    }

    proptest! {
        /// However builders and commits interleave: sequences rise, content never goes back, and once a last builder
        /// has run, the entry shows the last commit.
        #[test]
        fn accepted_entries_only_move_forward(events in events(Event::Commit)) {
            let mut world = play(events);
            world.run(0);
            prop_assert!(world.accepted.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{:?}", world.accepted);
            prop_assert_eq!(world.shown().map(|(_, content)| content), Some(world.content));
        }

        /// A follower keeps the highest sequence it has seen. Whatever was lost meanwhile: after the sweep that
        /// follows a loss, that is the entry that stands, and it shows the last commit.
        #[test]
        fn followers_end_at_the_last_commit_after_losses(events in events(Event::Lose)) {
            let mut world = play(events);
            let fence = world.draw();
            world.run(fence);
            let highest = world.accepted.iter().copied().max_by_key(|(sequence, _)| *sequence);
            prop_assert_eq!(highest, world.shown());
            prop_assert_eq!(highest.map(|(_, content)| content), Some(world.content));
        }
    }
}
