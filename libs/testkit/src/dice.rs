//! Chance that can be had again.

use std::env;

/// The environment variable with the seed of a run to be had again.
pub const VARIABLE: &str = "ROADSTEAD_SEED";

/// Numbers that follow from a seed. The seed is said on standard error, which the test runner shows if the test fails.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    /// With a fresh seed, or the one in [`VARIABLE`].
    #[must_use]
    pub fn new() -> Self {
        let seed = match env::var(VARIABLE) {
            Ok(text) => text.parse().unwrap_or_else(|_| panic!("{VARIABLE} is a whole number, not {text:?}")),
            Err(_) => uuid::Uuid::new_v4().as_u64_pair().0,
        };
        eprintln!("{VARIABLE}={seed}");
        Self(seed)
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }

    /// Whether it happens, in so many of a hundred cases.
    pub fn happens(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Any of them.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let at = self.below(from.len() as u64);
        &from[usize::try_from(at).unwrap()]
    }
}

impl Default for Dice {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_one_others() {
        let rolls = |seed| (0..8).scan(Dice(seed), |dice, _| Some(dice.below(6))).collect::<Vec<_>>();
        assert_eq!(rolls(1), rolls(1));
        assert_ne!(rolls(1), rolls(2));
        assert!((0..100).scan(Dice(3), |dice, _| Some(dice.happens(50))).filter(|happens| *happens).count() > 20);
    }
}
