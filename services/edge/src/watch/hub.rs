//! The newest state of every sandbox that is watched here. Pure: states come in from the feed and from reads, in any
//! order and any number of times; the newest is kept.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use uuid::Uuid;

use super::shown::Shown;

/// The sandboxes that are watched. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hub(Arc<Mutex<HashMap<Uuid, Watched>>>);

/// One sandbox with at least one watcher.
#[derive(Debug)]
struct Watched {
    watchers: usize,
    /// None until something is known.
    newest: watch::Sender<Option<Arc<Shown>>>,
}

/// One stream's place in the hub.
#[derive(Debug)]
pub(crate) struct Watcher {
    id: Uuid,
    hub: Hub,
    newest: watch::Receiver<Option<Arc<Shown>>>,
}

impl Hub {
    /// Watches a sandbox until the watcher is dropped.
    pub(crate) fn enter(&self, id: Uuid) -> Watcher {
        let mut watched = self.lock();
        let place = watched.entry(id).or_insert_with(|| Watched { watchers: 0, newest: watch::Sender::new(None) });
        place.watchers += 1;
        Watcher { id, hub: self.clone(), newest: place.newest.subscribe() }
    }

    /// Whether anybody watches this sandbox.
    pub(crate) fn is_watched(&self, id: &Uuid) -> bool {
        self.lock().contains_key(id)
    }

    /// Every sandbox that is watched.
    pub(crate) fn watched(&self) -> Vec<Uuid> {
        self.lock().keys().copied().collect()
    }

    /// Takes note of a state; keeps it if somebody watches and it is newer than what is known.
    pub(crate) fn offer(&self, id: Uuid, shown: Shown) {
        if let Some(watched) = self.lock().get(&id) {
            watched.newest.send_if_modified(|newest| {
                let newer = newest.as_deref().is_none_or(|known| shown.supersedes(known));
                if newer {
                    *newest = Some(Arc::new(shown));
                }
                newer
            });
        }
    }

    fn leave(&self, id: Uuid) {
        let mut watched = self.lock();
        if let Some(place) = watched.get_mut(&id) {
            place.watchers -= 1;
            if place.watchers == 0 {
                watched.remove(&id);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Watched>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher {
    /// The newest state, if any is known. [`Watcher::changed`] then waits for a newer one.
    pub(crate) fn newest(&mut self) -> Option<Arc<Shown>> {
        self.newest.borrow_and_update().clone()
    }

    /// Waits until there is a state that was not looked at yet.
    pub(crate) async fn changed(&mut self) {
        // Fails only if the sender is gone, and the hub keeps it as long as this watcher is there.
        if self.newest.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.hub.leave(self.id);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::watch::shown::{State, Version};

    fn shown(epoch: u64, version: u64, gone: bool) -> Shown {
        let here = State::Here { event: Bytes::from(format!("{epoch}.{version}")), terminal: false };
        let state = if gone { State::Gone } else { here };
        Shown { version: Version { epoch, version }, workspace_id: String::new(), state }
    }

    fn any_shown() -> impl Strategy<Value = Shown> {
        (0_u64..3, 0_u64..6, prop::bool::weighted(0.05)).prop_map(|(epoch, version, gone)| shown(epoch, version, gone))
    }

    proptest! {
        #[test]
        fn the_newest_state_is_kept_whatever_the_order(offers in proptest::collection::vec(any_shown(), 1..30)) {
            let hub = Hub::default();
            let mut watcher = hub.enter(Uuid::nil());
            let mut before = None;
            for offer in &offers {
                hub.offer(Uuid::nil(), offer.clone());
                let now = watcher.newest().unwrap();
                if let Some(before) = &before {
                    prop_assert!(&now == before || now.supersedes(before));
                }
                before = Some(now);
            }
            let newest = before.unwrap();
            prop_assert!(offers.iter().all(|offer| !offer.supersedes(&newest)));
            let mut of_its_epoch = offers.iter().filter(|offer| offer.version.epoch == newest.version.epoch);
            prop_assert_eq!(newest.state == State::Gone, of_its_epoch.any(|offer| offer.state == State::Gone));
        }

        #[test]
        fn a_place_is_kept_exactly_while_somebody_watches(steps in proptest::collection::vec((0_u128..3, any::<bool>()), 0..40)) {
            let hub = Hub::default();
            let mut watchers: HashMap<u128, Vec<Watcher>> = HashMap::new();
            for (id, enters) in steps {
                let of_id = watchers.entry(id).or_default();
                if enters { of_id.push(hub.enter(Uuid::from_u128(id))); } else { of_id.pop(); }
                prop_assert_eq!(hub.is_watched(&Uuid::from_u128(id)), !of_id.is_empty());
            }
            drop(watchers);
            prop_assert!(hub.watched().is_empty());
        }
    }

    #[tokio::test]
    async fn a_watcher_wakes_for_news_of_its_own_sandbox_only() {
        let (mine, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let hub = Hub::default();
        let mut watcher = hub.enter(mine);
        let _other = hub.enter(other);
        hub.offer(other, shown(1, 1, false));
        hub.offer(Uuid::from_u128(3), shown(1, 1, false));
        assert!(!watcher.newest.has_changed().unwrap());
        hub.offer(mine, shown(1, 2, false));
        watcher.changed().await;
        assert_eq!(watcher.newest().unwrap().version, Version { epoch: 1, version: 2 });
        hub.offer(mine, shown(1, 2, false));
        hub.offer(mine, shown(1, 1, false));
        assert!(!watcher.newest.has_changed().unwrap(), "nothing newer came");
    }

    #[test]
    fn a_watcher_that_comes_later_finds_what_is_known() {
        let hub = Hub::default();
        let _first = hub.enter(Uuid::nil());
        hub.offer(Uuid::nil(), shown(1, 4, false));
        assert_eq!(hub.enter(Uuid::nil()).newest().unwrap().version.version, 4);
    }
}
