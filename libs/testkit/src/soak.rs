//! The same tests, short or in full.

use std::{env, time::Duration};

/// The environment variable with the factor.
pub const VARIABLE: &str = "ROADSTEAD_SOAK";

/// By how much counts and periods are scaled: 1 in a plain test run, more in a soak.
#[must_use]
pub fn factor() -> u32 {
    match env::var(VARIABLE) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{VARIABLE} is a whole number, not {text:?}")),
        Err(_) => 1,
    }
}

/// `count`, scaled.
#[must_use]
pub fn count(count: u32) -> u32 {
    count * factor()
}

/// `period`, scaled.
#[must_use]
pub fn period(period: Duration) -> Duration {
    period * factor()
}
