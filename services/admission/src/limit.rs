//! How often something may happen for one id: a count within a window, for a bounded number of ids.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use uuid::Uuid;

/// Allows `most` times a window for each id. When more ids are known than fit, those whose window is over are
/// forgotten, and if that does not help, all: a limit must not become a way to fill the memory.
#[derive(Debug)]
pub struct Limit {
    most: u32,
    window: Duration,
    ids: usize,
    counts: Mutex<HashMap<Uuid, (SystemTime, u32)>>,
}

impl Limit {
    /// A limit of `most` in every `window`, kept for `ids` ids.
    #[must_use]
    pub fn new(most: u32, window: Duration, ids: usize) -> Self {
        Self { most, window, ids, counts: Mutex::default() }
    }

    /// Counts one more for `id`; false if that is too many.
    pub fn allows(&self, id: Uuid, now: SystemTime) -> bool {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let over = |since: &SystemTime| now.duration_since(*since).map_or(true, |age| age >= self.window);
        if counts.len() >= self.ids && !counts.contains_key(&id) {
            counts.retain(|_, (since, _)| !over(since));
            if counts.len() >= self.ids {
                counts.clear();
            }
        }
        let (since, count) = counts.entry(id).or_insert((now, 0));
        if over(since) {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        *count <= self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_window_allows_so_many_and_the_next_one_again() {
        let limit = Limit::new(2, Duration::from_secs(60), 10);
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert!(limit.allows(one, at(0)) && limit.allows(one, at(1)));
        assert!(!limit.allows(one, at(59)));
        assert!(limit.allows(other, at(59)));
        assert!(limit.allows(one, at(60)));
    }

    #[test]
    fn only_so_many_ids_are_kept() {
        let limit = Limit::new(1, Duration::from_secs(60), 3);
        for id in 0..100 {
            limit.allows(Uuid::from_u128(id), at(0));
        }
        assert!(limit.counts.lock().unwrap().len() <= 3);
    }
}
