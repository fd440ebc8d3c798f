//! The sweep of the model, which does what `sweep.rs` does and decides by [`crate::sweep::due`] and [`crate::sweep::life`].

use std::collections::VecDeque;

use super::builder::Build;
use super::{SWEEPER, World};
use crate::sweep::due::Pace;
use crate::sweep::life::Seen;

/// A pass of the sweep.
pub(super) struct Pass {
    pub(super) keys: VecDeque<u128>,
    pace: Pace,
    pub(super) at_least: u64,
    pub(super) unbuilt: bool,
}

impl World {
    pub(super) fn look(&mut self) {
        let entries = self.broker.keys().into_iter().filter_map(|key| self.broker.read(key).1);
        let former = self.bucket.is_unknown() && entries.into_iter().any(|entry| entry.epoch < self.database.epoch);
        if self.bucket.see(&self.broker.incarnation(), self.database.epoch, former) == Seen::Loss {
            (self.losses, self.lost) = (self.losses + 1, true);
            // A slow pass is broken off.
            if self.pass.take_if(|pass| pass.pace != Pace::Full).is_some() {
                self.builders[SWEEPER] = None;
            }
        }
    }

    pub(super) fn sweep(&mut self) {
        if self.pass.is_some() {
            return;
        }
        let pace = self.due.next(std::mem::take(&mut self.lost));
        if pace == Pace::Late {
            self.finish_what_was_before();
        }
        let at_least = self.due.at_least(pace, self.losses).unwrap_or_else(|| {
            let drawn = self.database.draw();
            self.due.demands(pace, self.losses, drawn);
            drawn
        });
        let mut keys = VecDeque::from(self.database.sandboxes(0));
        keys.extend(self.broker.keys().into_iter().filter(|key| self.database.content(*key).is_none()));
        self.pass = Some(Pass { keys, pace, at_least, unbuilt: false });
    }

    /// The sweep has rested, for longer than any build takes.
    fn finish_what_was_before(&mut self) {
        loop {
            if let Some(write) = self.writes.iter().position(|write| write.life < self.life) {
                self.arrive(write);
                continue;
            }
            let before = |build: &Option<Build>| build.as_ref().is_some_and(|build| build.life < self.life);
            let Some(number) = self.builders.iter().position(before) else { return };
            // Of what did not arrive, nothing is heard.
            self.builders[number].iter_mut().for_each(Build::give_up);
            self.build(number);
        }
    }

    /// Every entry had its turn.
    pub(super) fn pass_ended(&mut self) {
        if let Some(pass) = self.pass.take() {
            self.lost |= pass.pace == Pace::Full && pass.unbuilt;
            self.due.ended(pass.pace, !pass.unbuilt);
        }
    }
}
