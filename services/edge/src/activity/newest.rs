//! The newest few of what comes in the order of sequences. Pure.

use std::collections::VecDeque;

/// Keeps the newest so many, each with its sequence.
#[derive(Debug)]
pub(super) struct Newest<T> {
    most: usize,
    kept: VecDeque<(u64, T)>,
}

impl<T> Newest<T> {
    pub(super) const fn new(most: usize) -> Self {
        Self { most, kept: VecDeque::new() }
    }

    /// How many are kept at most.
    pub(super) const fn most(&self) -> usize {
        self.most
    }

    pub(super) fn see(&mut self, sequence: u64, seen: T) {
        self.kept.push_back((sequence, seen));
        if self.kept.len() > self.most {
            self.kept.pop_front();
        }
    }

    /// Sequence of the oldest that is kept.
    pub(super) fn first(&self) -> Option<u64> {
        self.kept.front().map(|(sequence, _)| *sequence)
    }

    /// Forgets what is older.
    pub(super) fn trim(&mut self, oldest: u64) {
        self.kept.retain(|(sequence, _)| *sequence >= oldest);
    }

    /// What is kept, the newest first.
    pub(super) fn newest_first(self) -> impl Iterator<Item = T> {
        self.kept.into_iter().rev().map(|(_, seen)| seen)
    }
}
