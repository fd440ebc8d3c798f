//! How many requests stand, and how many more may be made.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Requests that stand at a time, however many slots are free. Each is made again every few seconds while nothing comes, and
/// so many bring messages as fast as they can be taken.
pub(super) const STANDING: usize = 64;

/// Counts requests for one message each: one for each free slot, up to [`STANDING`]. A message does not say which request
/// it answers, so it is taken to answer the oldest.
#[derive(Debug)]
pub(super) struct Credit {
    slots: usize,
    give_up_after: Duration,
    last: u64,
    standing: VecDeque<(u64, Instant)>,
}

impl Credit {
    pub(super) fn new(slots: usize, give_up_after: Duration) -> Self {
        Self { slots: slots.max(1), give_up_after, last: 0, standing: VecDeque::new() }
    }

    /// Numbers of the requests to make now. Requests that were never answered are given up first.
    pub(super) fn requests(&mut self, now: Instant, busy: usize) -> std::ops::RangeInclusive<u64> {
        while self.standing.front().is_some_and(|(_, made)| now.duration_since(*made) >= self.give_up_after) {
            self.standing.pop_front();
        }
        let wanted = self.slots.saturating_sub(busy).min(STANDING);
        let missing = wanted.saturating_sub(self.standing.len());
        let first = self.last + 1;
        self.last += missing as u64;
        let numbers = first..=self.last;
        self.standing.extend(numbers.clone().map(|number| (number, now)));
        numbers
    }

    /// A message came.
    pub(super) fn delivered(&mut self) {
        self.standing.pop_front();
    }

    /// The broker ended that request without a message.
    pub(super) fn ended(&mut self, number: Option<u64>) {
        self.standing.retain(|(standing, _)| Some(*standing) != number);
    }

    /// All requests are void.
    pub(super) fn forget(&mut self) {
        self.standing.clear();
    }

    /// Whether a message may still come that was asked for.
    pub(super) fn any_stands(&self) -> bool {
        !self.standing.is_empty()
    }

    /// Whether a message that just came has a slot.
    pub(super) fn has_room(&self, busy: usize) -> bool {
        busy < self.slots
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIVE_UP: Duration = Duration::from_secs(4);

    fn made(credit: &mut Credit, now: Instant, busy: usize) -> Vec<u64> {
        credit.requests(now, busy).collect()
    }

    #[test]
    fn each_free_slot_has_one_request_up_to_a_limit() {
        let (mut credit, now) = (Credit::new(3, GIVE_UP), Instant::now());
        assert_eq!(made(&mut credit, now, 0), [1, 2, 3]);
        assert_eq!(made(&mut credit, now, 0), [0_u64; 0]);
        credit.delivered();
        assert_eq!(made(&mut credit, now, 1), [0_u64; 0]);
        assert_eq!(made(&mut credit, now, 0), [4]);

        let mut many = Credit::new(STANDING + 2, GIVE_UP);
        assert_eq!(made(&mut many, now, 0).len(), STANDING);
        many.delivered();
        assert_eq!(made(&mut many, now, 1), [65]);
    }

    #[test]
    fn an_expired_request_is_made_anew() {
        let (mut credit, now) = (Credit::new(1, GIVE_UP), Instant::now());
        assert_eq!(made(&mut credit, now, 0), [1]);
        credit.ended(Some(1));
        assert_eq!(made(&mut credit, now, 0), [2]);
    }

    #[test]
    fn the_end_of_a_request_that_does_not_stand_changes_nothing() {
        let (mut credit, now) = (Credit::new(1, GIVE_UP), Instant::now());
        assert_eq!(made(&mut credit, now, 0), [1]);
        credit.forget();
        assert_eq!(made(&mut credit, now, 0), [2]);
        credit.ended(Some(1));
        credit.ended(None);
        assert_eq!(made(&mut credit, now, 0), [0_u64; 0]);
    }

    #[test]
    fn a_request_without_any_answer_is_given_up() {
        let (mut credit, now) = (Credit::new(1, GIVE_UP), Instant::now());
        assert_eq!(made(&mut credit, now, 0), [1]);
        assert_eq!(made(&mut credit, now + GIVE_UP / 2, 0), [0_u64; 0]);
        assert_eq!(made(&mut credit, now + GIVE_UP, 0), [2]);
    }

    proptest! {
        #[test]
        fn standing_requests_and_busy_slots_never_exceed_the_slots_by_counting(
            slots in prop_oneof![1_usize..5, 60_usize..200], steps in proptest::collection::vec(0_u8..5, 0..200),
        ) {
            let (mut credit, mut now, mut busy) = (Credit::new(slots, GIVE_UP), Instant::now(), 0_usize);
            for step in steps {
                match step {
                    0 if !credit.standing.is_empty() => { credit.delivered(); busy += usize::from(credit.has_room(busy)); }
                    1 => busy = busy.saturating_sub(1),
                    2 => { let oldest = credit.standing.front().map(|(number, _)| *number); credit.ended(oldest); }
                    3 => credit.forget(),
                    _ => now += Duration::from_secs(1),
                }
                let _numbers = credit.requests(now, busy);
                // Fewer would leave slots empty while messages wait; more would bring what has no slot.
                prop_assert_eq!(credit.standing.len(), slots.saturating_sub(busy).min(STANDING));
            }
        }
    }
}
