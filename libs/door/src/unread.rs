//! How much of what goes to peers may wait in this process, and who gives way when it is more: of those for whom much
//! waits, who has taken nothing for longest.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::reader::Reader;

/// What a response that waits costs beside its bytes.
const OVERHEAD: usize = 4 * 1024;

/// What waits to be taken, of all connections together. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Unread {
    limit: usize,
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: usize,
    next: u64,
    /// By the turn of the last progress, so the first has made none for longest.
    turns: BTreeMap<u64, (usize, Arc<Reader>)>,
}

/// A part of it. It is given back when dropped.
#[derive(Debug)]
pub(crate) struct Part {
    unread: Unread,
    turn: u64,
}

impl Unread {
    /// At most so many bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, waiting: Arc::default() }
    }

    /// So many bytes wait for this reader. If they are too many together, others give way.
    pub(crate) fn wait(&self, reader: &Arc<Reader>, bytes: usize) -> Part {
        let mut waiting = self.lock();
        let turn = waiting.enter(bytes + OVERHEAD, Arc::clone(reader));
        while waiting.bytes > self.limit {
            let Some((_, reader)) = waiting.first_of_the_large().and_then(|first| waiting.leave(first)) else { break };
            reader.give_way();
        }
        Part { unread: self.clone(), turn }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Of those with no less than their mean, the one whose last progress is the oldest, the newest of all apart. So
    /// many small ones do not give way to a few large ones.
    fn first_of_the_large(&self) -> Option<u64> {
        let (newest, (its_bytes, _)) = self.turns.last_key_value()?;
        let (count, sum) = (self.turns.len() - 1, self.bytes - its_bytes);
        let mut others = self.turns.range(..newest);
        others.find(|(_, (bytes, _))| bytes * count >= sum).map(|(turn, _)| *turn)
    }

    fn enter(&mut self, bytes: usize, reader: Arc<Reader>) -> u64 {
        let turn = self.next;
        self.next += 1;
        self.bytes += bytes;
        self.turns.insert(turn, (bytes, reader));
        turn
    }

    fn leave(&mut self, turn: u64) -> Option<(usize, Arc<Reader>)> {
        let left = self.turns.remove(&turn)?;
        self.bytes -= left.0;
        Some(left)
    }
}

impl Part {
    /// Something of it was taken.
    pub(crate) fn progress(&mut self) {
        let mut waiting = self.unread.lock();
        if let Some((bytes, reader)) = waiting.leave(self.turn) {
            self.turn = waiting.enter(bytes, reader);
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.unread.lock().leave(self.turn);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ONE: usize = 1024;

    fn room_for(count: usize) -> Unread {
        Unread::new(count * (ONE + OVERHEAD))
    }

    #[test]
    fn who_has_taken_nothing_for_longest_gives_way() {
        let unread = room_for(3);
        let readers: [Arc<Reader>; 5] = Default::default();
        let mut parts: Vec<_> = readers[..3].iter().map(|reader| unread.wait(reader, ONE)).collect();
        assert!(!readers.iter().any(|reader| reader.gives_way()));

        parts[0].progress();
        let _fourth = unread.wait(&readers[3], ONE);
        assert_eq!(readers.each_ref().map(|reader| reader.gives_way()), [false, true, false, false, false]);

        drop(parts.remove(2));
        let _fifth = unread.wait(&readers[4], ONE);
        assert_eq!(readers.each_ref().map(|reader| reader.gives_way()), [false, true, false, false, false]);
    }

    #[test]
    fn small_ones_do_not_give_way_to_large_ones() {
        let unread = Unread::new(300 * ONE);
        let (small, large): ([Arc<Reader>; 10], [Arc<Reader>; 10]) = Default::default();
        let _small: Vec<_> = small.iter().map(|reader| unread.wait(reader, 1)).collect();
        let _large: Vec<_> = large.iter().map(|reader| unread.wait(reader, 30 * ONE)).collect();
        assert!(!small.iter().any(|reader| reader.gives_way()));
        assert!(large[0].gives_way() && !large[9].gives_way());
    }

    #[test]
    fn one_that_is_larger_than_all_room_is_alone() {
        let unread = room_for(1);
        let (small, large) = (Arc::default(), Arc::default());
        let _small = unread.wait(&small, ONE);
        let _large = unread.wait(&large, 10 * ONE);
        assert!(small.gives_way() && !large.gives_way());
    }

    proptest! {
        #[test]
        fn the_limit_holds_and_nothing_is_left_behind(
            steps in proptest::collection::vec((0_usize..6, 0_u8..3, 1_usize..3 * ONE), 0..80),
        ) {
            let unread = room_for(4);
            let mut parts: BTreeMap<usize, Part> = BTreeMap::new();
            for (who, what, bytes) in steps {
                match what {
                    0 => drop(parts.insert(who, unread.wait(&Arc::default(), bytes))),
                    1 => drop(parts.remove(&who)),
                    _ => if let Some(part) = parts.get_mut(&who) { part.progress() },
                }
                let waiting = unread.lock();
                prop_assert!(waiting.bytes <= unread.limit);
                prop_assert_eq!(waiting.bytes, waiting.turns.values().map(|(bytes, _)| bytes).sum::<usize>());
            }
            parts.clear();
            prop_assert_eq!(unread.lock().bytes, 0);
        }
    }
}
