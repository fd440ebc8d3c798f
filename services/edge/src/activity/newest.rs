//! The newest few of what comes in the order of sequences. Pure.

use std::collections::VecDeque;

/// Keeps the newest so many, each with its sequence.
#[derive(Debug)]
pub(super) struct Newest<T> {
    most: usize,
    most_bytes: usize,
    bytes: usize,
    kept: VecDeque<Kept<T>>,
}

#[derive(Debug)]
struct Kept<T> {
    sequence: u64,
    bytes: usize,
    seen: T,
}

impl<T> Newest<T> {
    /// Keeps at most so many, of at most so many bytes together.
    pub(super) const fn new(most: usize, most_bytes: usize) -> Self {
        Self { most, most_bytes, bytes: 0, kept: VecDeque::new() }
    }

    /// How many are kept at most.
    pub(super) const fn most(&self) -> usize {
        self.most
    }

    /// Takes note of one that counts as so many bytes.
    pub(super) fn see(&mut self, sequence: u64, bytes: usize, seen: T) {
        self.bytes += bytes;
        self.kept.push_back(Kept { sequence, bytes, seen });
        while self.kept.len() > self.most || self.bytes > self.most_bytes {
            let Some(oldest) = self.kept.pop_front() else { return };
            self.bytes -= oldest.bytes;
        }
    }

    /// Sequence of the oldest that is kept.
    pub(super) fn first(&self) -> Option<u64> {
        self.kept.front().map(|kept| kept.sequence)
    }

    /// Forgets what is older.
    pub(super) fn trim(&mut self, oldest: u64) {
        while let Some(gone) = self.kept.pop_front_if(|kept| kept.sequence < oldest) {
            self.bytes -= gone.bytes;
        }
    }

    /// What is kept, the newest first.
    pub(super) fn newest_first(self) -> impl Iterator<Item = T> {
        self.kept.into_iter().rev().map(|kept| kept.seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_when_there_are_too_many_or_too_large_ones() {
        let kept = |most, sizes: &[usize], oldest| {
            let mut newest = Newest::new(most, 10);
            (1..).zip(sizes).for_each(|(sequence, &bytes)| newest.see(sequence, bytes, sequence));
            newest.trim(oldest);
            // What was trimmed leaves its room to others.
            newest.see(9, 6, 9);
            newest.newest_first().collect::<Vec<_>>()
        };
        assert_eq!(kept(3, &[1, 1, 1, 1], 0), [9, 4, 3]);
        assert_eq!(kept(9, &[5, 5, 4], 0), [9, 3]);
        assert_eq!(kept(9, &[1, 6, 3], 3), [9, 3]);
        assert_eq!(kept(9, &[1, 11], 0), [9]);
    }
}
