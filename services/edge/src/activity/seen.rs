//! What the feed of activity has brought, against what the broker says is stored. Pure.

use prost_types::Timestamp;
use roadstead_bus::activity::State;

/// What the feed has brought.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// Sequence up to which everything was told to the hub.
    through: u64,
    /// The newest line that came: its sequence and when it was stored.
    newest: Option<(u64, Timestamp)>,
    /// How the stream stood when it was looked at last.
    state: Option<State>,
}

/// What a look at the stream shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shows {
    Nothing,
    /// What was stored before the last look was not brought since.
    Missed,
    /// The stream was made anew, or went back in time.
    Restarted,
}

impl Seen {
    /// The newest line that came, to be found again at a look.
    pub(super) const fn newest(&self) -> Option<(u64, Timestamp)> {
        self.newest
    }

    /// A line was told to the hub.
    pub(super) fn stored(&mut self, sequence: u64, stored: Timestamp) {
        self.through = self.through.max(sequence);
        // A look may be ahead of what is still on its way.
        if self.newest.is_none_or(|(newest, _)| newest < sequence) {
            self.newest = Some((sequence, stored));
        }
    }

    /// Looks at how the stream stands. `found` is when the message was stored that now has the sequence of the newest
    /// line, if that was looked for and is there: writers may have passed the place to which the stream went back.
    pub(super) fn look(&mut self, state: State, found: Option<Timestamp>) -> Shows {
        let before = self.state.replace(state);
        let Some(before) = before else { return Shows::Missed };
        let is_other = self.newest.zip(found).is_some_and(|((_, stored), found)| stored != found);
        if is_other || before.incarnation != state.incarnation || state.last < before.last.max(self.through) {
            self.through = state.last;
            self.newest = None;
            Shows::Restarted
        } else if self.through < before.last {
            Shows::Missed
        } else {
            Shows::Nothing
        }
    }

    /// The newest sequence at the last look.
    pub(super) fn last(&self) -> u64 {
        self.state.map_or(0, |state| state.last)
    }

    /// Up to where nothing was missed. What is stored by now is read by all who hear of it, so it counts as told; `tip` is
    /// when the last of it was stored, if that is known.
    pub(super) fn missed(&mut self, tip: Option<Timestamp>) -> u64 {
        let (through, last) = (self.through, self.last());
        // After a restart nothing is known of the newest line, though nothing was missed.
        if last > through || self.newest.is_none() {
            self.through = last.max(through);
            self.newest = tip.map(|tip| (last, tip)).or(self.newest);
        }
        through
    }
}

#[cfg(test)]
mod tests {
    use roadstead_proto::cursor::Incarnation;

    use super::*;

    fn state(life: &str, last: u64) -> State {
        State { incarnation: Incarnation::created(life), first: 1, last }
    }

    #[test]
    fn what_was_stored_before_a_look_has_to_be_there_at_the_next() {
        let mut seen = Seen::default();
        assert_eq!(seen.look(state("a", 5), None), Shows::Missed, "nothing is known at first");
        assert_eq!(seen.missed(None), 0);
        assert_eq!(seen.look(state("a", 7), None), Shows::Nothing, "6 and 7 may be on their way");
        assert_eq!(seen.look(state("a", 7), None), Shows::Missed);
        seen.through = 7;
        assert_eq!(seen.look(state("a", 7), None), Shows::Nothing);
    }

    #[test]
    fn another_life_and_a_way_back_are_restarts() {
        let mut seen = Seen::default();
        seen.look(state("a", 5), None);
        seen.missed(None);
        assert_eq!(seen.look(state("b", 9), None), Shows::Restarted);
        assert_eq!(seen.look(state("b", 8), None), Shows::Restarted);
        seen.through = 12;
        assert_eq!(seen.look(state("b", 10), None), Shows::Restarted, "more was told than is stored");
    }

    #[test]
    fn a_way_back_that_writers_have_passed_is_a_restart() {
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        let mut seen = Seen { through: 5, newest: Some((5, at(50))), ..Seen::default() };
        seen.look(state("a", 5), None);
        assert_eq!(seen.look(state("a", 9), Some(at(50))), Shows::Nothing);
        assert_eq!(seen.look(state("a", 9), None), Shows::Missed, "it was trimmed, or not looked for");
        assert_eq!(seen.look(state("a", 9), Some(at(60))), Shows::Restarted);
        assert_eq!(seen.look(state("a", 9), Some(at(60))), Shows::Nothing, "it is told once");
    }

    #[test]
    fn a_way_back_over_what_was_read_and_not_told_is_a_restart_too() {
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        let mut seen = Seen { through: 5, newest: Some((5, at(50))), ..Seen::default() };
        seen.look(state("a", 7), None);
        assert_eq!((seen.missed(Some(at(70))), seen.newest()), (5, Some((7, at(70)))));
        seen.stored(6, at(60));
        assert_eq!(seen.look(state("a", 9), Some(at(80))), Shows::Restarted);
    }
}
