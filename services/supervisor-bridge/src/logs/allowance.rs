//! How much one sandbox may log, and what it is told of the rest. Pure.

use std::time::{Duration, Instant};

/// Lines that are taken of one batch.
pub const BATCH: usize = 100;
/// Lines of one sandbox a second; as many may come at once.
pub const LINES: u32 = 5000;
/// Bytes of one sandbox a second; as many may come at once.
pub const BYTES: u32 = 4 * 1024 * 1024;
/// Time between two words on dropped lines.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The allowance of one sandbox. It is full after a second without a line.
#[derive(Clone, Debug)]
pub struct Allowance {
    lines: f64,
    bytes: f64,
    filled: Instant,
    /// Lines that were dropped and not spoken of yet.
    dropped: u64,
    told: Option<Instant>,
}

impl Allowance {
    /// A full one.
    #[must_use]
    pub fn full(now: Instant) -> Self {
        Self { lines: LINES.into(), bytes: BYTES.into(), filled: now, dropped: 0, told: None }
    }

    /// Whether a line of that size may be stored now. Otherwise it is dropped.
    pub fn take(&mut self, bytes: usize, now: Instant) -> bool {
        let seconds = now.saturating_duration_since(self.filled).as_secs_f64();
        self.filled = self.filled.max(now);
        self.lines = (self.lines + seconds * f64::from(LINES)).min(LINES.into());
        self.bytes = (self.bytes + seconds * f64::from(BYTES)).min(BYTES.into());
        let bytes = bytes as f64;
        let fits = self.lines >= 1.0 && self.bytes >= bytes;
        if fits {
            self.lines -= 1.0;
            self.bytes -= bytes;
        } else {
            self.dropped += 1;
        }
        fits
    }

    /// Lines were lost on another way.
    pub const fn lost(&mut self, lines: u64) {
        self.dropped += lines;
    }

    /// How many dropped lines are to be spoken of now; `last` if there is no later.
    pub fn tell(&mut self, now: Instant, last: bool) -> Option<u64> {
        let waits = self.told.is_some_and(|told| now < told + TELL_EVERY);
        if self.dropped == 0 || (waits && !last) {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.dropped))
    }

    /// Whether a new one would be no different.
    #[must_use]
    pub fn is_full(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.filled) >= Duration::from_secs(1) && self.dropped == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_rate_is_kept_and_the_rest_is_counted() {
        let begin = Instant::now();
        let mut allowance = Allowance::full(begin);
        let taken =
            |allowance: &mut Allowance, lines: u32, now| (0..lines).filter(|_| allowance.take(100, now)).count();
        assert_eq!(taken(&mut allowance, LINES + 7, begin), LINES as usize);
        assert_eq!(allowance.tell(begin, false), Some(7));
        assert_eq!(taken(&mut allowance, LINES, begin + Duration::from_millis(500)), LINES as usize / 2);
        assert_eq!(allowance.tell(begin + Duration::from_millis(900), false), None, "once a second");
        assert_eq!(allowance.tell(begin + Duration::from_millis(900), true), Some(u64::from(LINES) / 2));
        assert_eq!(allowance.tell(begin + Duration::from_secs(9), true), None, "there is nothing to tell");
    }

    #[test]
    fn large_lines_use_up_the_bytes_first() {
        let now = Instant::now();
        let mut allowance = Allowance::full(now);
        let lines = (0..LINES).filter(|_| allowance.take(4096, now)).count();
        assert_eq!(lines, BYTES as usize / 4096);
        assert!(allowance.take(4096, now + Duration::from_millis(10)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn no_pattern_of_calls_gets_more_than_the_rate_and_one_burst(
            steps in proptest::collection::vec((0_u64..400, 0_u32..3000), 1..40),
        ) {
            let begin = Instant::now();
            let (mut allowance, mut now, mut stored, mut dropped) = (Allowance::full(begin), begin, 0.0, 0);
            for (pause, lines) in steps {
                now += Duration::from_millis(pause);
                for _ in 0..lines {
                    if allowance.take(10, now) { stored += 1.0 } else { dropped += 1 }
                }
            }
            let seconds = now.duration_since(begin).as_secs_f64();
            prop_assert!(stored <= (seconds + 1.0) * f64::from(LINES) + 1.0);
            prop_assert_eq!(allowance.tell(now, true).unwrap_or(0), dropped);
        }
    }
}
