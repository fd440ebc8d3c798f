//! How much of the queue one caller may take: commands counted from publish to answer, client gone or not (D2).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

/// Commands of one caller that a door keeps in flight, unless configured otherwise.
pub const DEFAULT: usize = 256;

/// Counts what each caller has in flight.
#[derive(Clone, Debug)]
pub struct Share {
    limit: usize,
    in_flight: Arc<Mutex<HashMap<[u8; 32], usize>>>,
}

impl Share {
    /// Each caller may have `limit` commands in flight.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, in_flight: Arc::default() }
    }

    /// Takes a place for one command, unless the caller has none left. The place is given back when it is dropped.
    #[must_use]
    pub fn take(&self, caller: [u8; 32]) -> Option<Place> {
        let mut in_flight = self.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        let count = in_flight.get(&caller).copied().unwrap_or_default();
        if count >= self.limit {
            return None;
        }
        in_flight.insert(caller, count + 1);
        Some(Place { caller, in_flight: Arc::clone(&self.in_flight) })
    }
}

/// A place in a caller's share.
#[derive(Debug)]
pub struct Place {
    caller: [u8; 32],
    in_flight: Arc<Mutex<HashMap<[u8; 32], usize>>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut in_flight = self.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = in_flight.entry(self.caller) {
            if *count.get() > 1 {
                *count.get_mut() -= 1;
            } else {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nobody_exceeds_the_limit_and_nothing_is_left_behind(
            limit in 0_usize..4,
            steps in proptest::collection::vec((0_u8..3, any::<bool>()), 0..60),
        ) {
            let share = Share::new(limit);
            let mut held: HashMap<u8, Vec<Place>> = HashMap::new();
            for (caller, take) in steps {
                let places = held.entry(caller).or_default();
                if take {
                    let place = share.take([caller; 32]);
                    prop_assert_eq!(place.is_some(), places.len() < limit);
                    places.extend(place);
                } else {
                    places.pop();
                }
            }
            held.clear();
            prop_assert!(share.in_flight.lock().unwrap().is_empty());
        }
    }
}
