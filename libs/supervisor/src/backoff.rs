//! Pauses between attempts to connect. Pure: the random number comes in.

use std::time::Duration;

/// How pauses grow.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// Longest first pause.
    pub first: Duration,
    /// Longest pause of all.
    pub longest: Duration,
    /// A connection that held this long makes the next pause a first one.
    pub steady: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(200), longest: Duration::from_secs(5), steady: Duration::from_secs(5) }
    }
}

impl Backoff {
    /// The pause after this many failures in a row, 0 for the first: at random between half of its longest and all of
    /// it. `random` is from 0 to 1.
    pub(crate) fn pause(&self, failures: u32, random: f64) -> Duration {
        let longest = self.first.saturating_mul(2_u32.saturating_pow(failures)).min(self.longest);
        longest.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let backoff = Backoff::default();
        let pauses: Vec<_> = (0..7).map(|failures| backoff.pause(failures, 1.0).as_millis()).collect();
        assert_eq!(pauses, [200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(backoff.pause(0, 0.0), Duration::from_millis(100));
        assert_eq!(backoff.pause(u32::MAX, 1.0), backoff.longest);
    }
}
