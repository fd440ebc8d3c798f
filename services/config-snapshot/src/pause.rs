//! How long a failed build rests before it is tried again.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// 1 s after the first attempt, doubling to 60 s.
#[must_use]
pub(crate) fn after(attempt: u64) -> Duration {
    let doublings = u32::try_from(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
    FIRST.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_from_a_second_to_a_minute() {
        let seconds = [0, 1, 2, 3, 6, 7, 100, u64::MAX].map(|attempt| after(attempt).as_secs());
        assert_eq!(seconds, [1, 1, 2, 4, 32, 60, 60, 60]);
    }
}
