//! The one place where the wall clock is read. Cores take the time as an argument; shells get it here.

use std::time::SystemTime;

/// The wall clock's time now.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub fn now() -> SystemTime {
    SystemTime::now()
}
