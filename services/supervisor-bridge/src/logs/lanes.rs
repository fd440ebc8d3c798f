//! One lane for each sandbox: its batches are stored one after the other, within its allowance, however many streams
//! it opens.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use uuid::Uuid;

use super::allowance::Allowance;

/// Lanes beyond which those that say nothing are looked for.
const MANY: usize = 1024;

/// A sandbox's lane.
pub(crate) type Lane = Arc<tokio::sync::Mutex<Allowance>>;

/// The lanes of this process.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    lanes: Mutex<HashMap<Uuid, Lane>>,
}

impl Lanes {
    /// The lane of a sandbox; none if it holds as many as it may.
    pub(crate) fn enter(&self, sandbox_id: Uuid, most: usize, now: Instant) -> Option<Lane> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if lanes.len() >= MANY {
            lanes.retain(|_, lane| Arc::strong_count(lane) > 1 || !lane.try_lock().is_ok_and(|lane| lane.is_full(now)));
        }
        let lane = lanes.entry(sandbox_id).or_insert_with(|| Arc::new(tokio::sync::Mutex::new(Allowance::full(now))));
        (Arc::strong_count(lane) <= most).then(|| Arc::clone(lane))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_sandbox_has_one_lane_and_so_many_places_in_it() {
        let (lanes, now, id) = (Lanes::default(), Instant::now(), Uuid::nil());
        let places = [lanes.enter(id, 2, now), lanes.enter(id, 2, now)].map(Option::unwrap);
        assert!(Arc::ptr_eq(&places[0], &places[1]));
        assert!(lanes.enter(id, 2, now).is_none());
        drop(places);
        assert!(lanes.enter(id, 2, now).is_some());
    }

    #[test]
    fn an_allowance_outlives_its_streams_until_it_is_full_again() {
        let (lanes, now) = (Lanes::default(), Instant::now());
        let lane = lanes.enter(Uuid::nil(), 1, now).unwrap();
        while lane.try_lock().unwrap().take(1, now) {}
        assert!(lane.try_lock().unwrap().tell(now, true).is_some());
        drop(lane);
        for id in 1..=MANY as u128 {
            drop(lanes.enter(Uuid::from_u128(id), 1, now));
        }
        assert!(!lanes.enter(Uuid::nil(), 1, now).unwrap().try_lock().unwrap().take(1, now));
        let later = now + Duration::from_secs(2);
        drop(lanes.enter(Uuid::from_u128(5), 1, later));
        assert!(lanes.lanes.lock().unwrap().len() < MANY);
    }
}
