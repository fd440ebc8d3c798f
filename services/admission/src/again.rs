//! Room for deliveries that come again.
//!
//! The broker hands them out before new ones. Without a bound, those who wait for one locked row would fill every slot
//! for as long as it is locked, and nobody else's command would be begun.

use std::time::{Duration, SystemTime};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::envelope::Queue;

/// Pause of a delivery that finds no place, however often it finds none. A duplicate that only waits for another command loses no more time so than
/// it may.
pub(crate) const CROWDED: Duration = Duration::from_millis(500);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause is the first one doubled so often: 8 s.
const DOUBLINGS: u64 = 5;
/// No pause takes more than such a part of the time that a command has left: it may have come so often for want of a
/// place alone.
const PART_OF_THE_REST: u32 = 4;

/// What comes back this long after its deadline is past it.
const JUST_AFTER: Duration = Duration::from_millis(1);

/// Half of the slots of each queue.
#[derive(Debug)]
pub(crate) struct Again {
    commands: Semaphore,
    reports: Semaphore,
}

/// A place among the slots, until it is dropped.
#[derive(Debug)]
pub(crate) enum Place<'a> {
    /// Of a delivery that comes for the first time: it has whatever its queue gives to new ones.
    First,
    Again {
        _permit: SemaphorePermit<'a>,
    },
}

impl Again {
    pub(crate) fn new(command_slots: u16, report_slots: u16) -> Self {
        let half = |slots: u16| Semaphore::new(usize::from(slots / 2).max(1));
        Self { commands: half(command_slots), reports: half(report_slots) }
    }

    /// A place for a delivery of that count; none if too many others have come again.
    pub(crate) fn place(&self, queue: Queue, deliveries: u64) -> Option<Place<'_>> {
        if deliveries <= 1 {
            return Some(Place::First);
        }
        let room = match queue {
            Queue::Commands => &self.commands,
            Queue::Reports => &self.reports,
        };
        room.try_acquire().ok().map(|permit| Place::Again { _permit: permit })
    }
}

/// Pause of a delivery that has waited for a locked row and has so much time `left`: the longer, the more often it has
/// come.
pub(crate) fn pause(deliveries: u64, left: Duration) -> Duration {
    let doubled = FIRST_PAUSE * (1 << deliveries.saturating_sub(1).min(DOUBLINGS));
    doubled.min((left / PART_OF_THE_REST).max(FIRST_PAUSE))
}

/// A pause cut at the deadline, so that the command is told then that its time is over. Past it there is nothing to hurry
/// for.
pub(crate) fn cut(pause: Duration, deadline: SystemTime, now: SystemTime) -> Duration {
    match deadline.duration_since(now) {
        Ok(left) => pause.min(left + JUST_AFTER),
        Err(_) => pause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_again_takes_half_of_its_queues_slots_and_what_is_new_any() {
        let again = Again::new(4, 1);
        let places: Vec<_> = (0..2).map(|_| again.place(Queue::Commands, 2).unwrap()).collect();
        assert!(again.place(Queue::Commands, 7).is_none());
        assert!(again.place(Queue::Commands, 1).is_some());
        assert!(again.place(Queue::Reports, 2).is_some());
        drop(places);
        assert!(again.place(Queue::Commands, 7).is_some());
    }

    #[test]
    fn pauses_double_up_to_eight_seconds() {
        let minute = Duration::from_secs(60);
        let pauses = [1, 2, 3, 6, 7, u64::MAX].map(|deliveries| pause(deliveries, minute).as_millis());
        assert_eq!(pauses, [250, 500, 1000, 8000, 8000, 8000]);
    }

    #[test]
    fn a_command_that_came_often_for_want_of_a_place_does_not_sleep_its_time_away() {
        let pauses = [60_000, 8000, 2000, 900, 0].map(|left| pause(20, Duration::from_millis(left)).as_millis());
        assert_eq!(pauses, [8000, 2000, 500, 250, 250]);
    }

    #[test]
    fn a_pause_ends_just_after_the_deadline_unless_that_is_over() {
        let (deadline, second) = (SystemTime::UNIX_EPOCH + Duration::from_secs(100), Duration::from_secs(1));
        let cut = |early| cut(second, deadline, deadline - early);
        assert_eq!([cut(second * 2), cut(second / 10)], [second, second / 10 + JUST_AFTER]);
        assert_eq!(super::cut(second, deadline, deadline + JUST_AFTER), second);
    }
}
