//! What is new of the sandboxes whose lines are followed here. A follower that is too slow drops news, never the feed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use uuid::Uuid;

use super::lines::News;

/// News that are kept of each sandbox for a follower that is slower than the others: some 256 KiB of the longest lines.
/// Whoever is slower still reads on in pages.
const KEPT: usize = 32;

/// The sandboxes that are followed. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Hub(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    followed: HashMap<Uuid, Place>,
    /// News that are kept for each sandbox.
    kept: usize,
    /// How often the broker's stream began anew.
    restarts: u64,
}

/// One sandbox with at least one follower.
#[derive(Debug)]
struct Place {
    followers: usize,
    news: broadcast::Sender<News>,
}

/// One stream's place in the hub.
#[derive(Debug)]
pub(crate) struct Receiver {
    id: Uuid,
    hub: Hub,
    news: broadcast::Receiver<News>,
    /// Restarts this one was told of.
    restarts: u64,
}

/// What a follower is told.
#[derive(Debug)]
pub(crate) enum Told {
    News(News),
    /// News were dropped.
    Lagged,
}

impl Hub {
    /// Keeps so many news for each sandbox.
    pub(super) fn keeping(kept: usize) -> Self {
        Self(Arc::new(Mutex::new(State { followed: HashMap::new(), kept, restarts: 0 })))
    }

    /// Follows a sandbox from now on, until the receiver is dropped.
    pub(crate) fn enter(&self, id: Uuid) -> Receiver {
        let mut state = self.lock();
        let (restarts, kept) = (state.restarts, state.kept);
        let place =
            state.followed.entry(id).or_insert_with(|| Place { followers: 0, news: broadcast::Sender::new(kept) });
        place.followers += 1;
        Receiver { id, hub: self.clone(), news: place.news.subscribe(), restarts }
    }

    /// Whether anybody follows this sandbox.
    pub(crate) fn is_followed(&self, id: Uuid) -> bool {
        self.lock().followed.contains_key(&id)
    }

    /// Tells those who follow this sandbox.
    pub(crate) fn tell(&self, id: Uuid, news: News) {
        if let Some(place) = self.lock().followed.get(&id) {
            place.tell(news);
        }
    }

    /// Tells everybody that something may have been missed after this sequence.
    pub(crate) fn gap(&self, after: u64) {
        for place in self.lock().followed.values() {
            place.tell(News::Gap { after });
        }
    }

    /// Tells everybody that the broker's stream begins anew.
    pub(crate) fn restarted(&self) {
        let mut state = self.lock();
        state.restarts += 1;
        for place in state.followed.values() {
            place.tell(News::Restarted);
        }
    }

    fn leave(&self, id: Uuid) {
        let mut state = self.lock();
        if let Some(place) = state.followed.get_mut(&id) {
            place.followers -= 1;
            if place.followers == 0 {
                state.followed.remove(&id);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Hub {
    fn default() -> Self {
        Self::keeping(KEPT)
    }
}

impl Place {
    fn tell(&self, news: News) {
        // A follower that is just leaving needs no news.
        let _nobody = self.news.send(news);
    }
}

impl Receiver {
    /// Waits for news. It may be cancelled without losing any.
    pub(crate) async fn next(&mut self) -> Told {
        match self.news.recv().await {
            Ok(news) => {
                self.restarts += u64::from(matches!(news, News::Restarted));
                Told::News(news)
            }
            Err(RecvError::Lagged(_)) if self.pass_over() => Told::News(News::Restarted),
            Err(RecvError::Lagged(_)) => Told::Lagged,
            // Fails only if the sender is gone, and the hub keeps it as long as this receiver is there.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }

    /// Passes over all news that are kept, because what is stored is read from now on; whether a restart was among them, or
    /// among those that were dropped.
    pub(crate) fn pass_over(&mut self) -> bool {
        // Nothing is told meanwhile.
        let state = self.hub.lock();
        self.news = self.news.resubscribe();
        std::mem::replace(&mut self.restarts, state.restarts) != state.restarts
    }

    /// Whether a restart was told that this one has not heard of yet.
    pub(crate) fn is_restarted(&self) -> bool {
        self.hub.lock().restarts != self.restarts
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.hub.leave(self.id);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::activity::lines::tests::{all as wanted, log, time};
    use crate::activity::lines::{Lines, Next};

    const MINE: Uuid = Uuid::from_u128(1);
    const OTHER: Uuid = Uuid::from_u128(2);

    fn told(receiver: &mut Receiver) -> String {
        match receiver.next().now_or_never() {
            None => "nothing".to_owned(),
            Some(Told::Lagged) => "lagged".to_owned(),
            Some(Told::News(News::Gap { after })) => format!("gap {after}"),
            Some(Told::News(News::Restarted)) => "restarted".to_owned(),
            Some(Told::News(News::Stored { before, .. })) => format!("stored after {before}"),
        }
    }

    #[test]
    fn a_follower_hears_of_its_own_sandbox_and_of_what_concerns_all() {
        let hub = Hub::default();
        let (mut mine, mut other) = (hub.enter(MINE), hub.enter(OTHER));
        hub.tell(MINE, News::Gap { after: 1 });
        hub.gap(2);
        hub.restarted();
        assert_eq!([(); 4].map(|()| told(&mut mine)), ["gap 1", "gap 2", "restarted", "nothing"]);
        assert_eq!([(); 3].map(|()| told(&mut other)), ["gap 2", "restarted", "nothing"]);
        drop(mine);
        assert!(!hub.is_followed(MINE) && hub.is_followed(OTHER));
    }

    #[test]
    fn a_restart_is_told_once_even_if_its_word_was_dropped() {
        let hub = Hub::default();
        for restarts_first in [true, false] {
            let mut slow = hub.enter(MINE);
            if restarts_first {
                hub.restarted();
            }
            (0..=KEPT as u64).for_each(|after| hub.gap(after));
            if !restarts_first {
                hub.restarted();
            }
            assert_eq!([(); 2].map(|()| told(&mut slow)), ["restarted", "nothing"]);
            hub.gap(1);
            hub.restarted();
            assert_eq!([(); 3].map(|()| told(&mut slow)), ["gap 1", "restarted", "nothing"]);
        }
    }

    #[test]
    fn what_lies_between_two_restarts_is_told_between_them() {
        let hub = Hub::default();
        let mut mine = hub.enter(MINE);
        hub.restarted();
        hub.gap(1000);
        hub.restarted();
        assert_eq!([(); 4].map(|()| told(&mut mine)), ["restarted", "gap 1000", "restarted", "nothing"]);
    }

    #[test]
    fn nothing_of_an_old_life_is_told_after_a_restart_that_a_slow_follower_missed() {
        let hub = Hub::default();
        let mut slow = hub.enter(MINE);
        (0..=KEPT as u64).for_each(|after| hub.gap(after));
        hub.gap(1000);
        hub.restarted();
        hub.tell(MINE, News::Stored { line: log(1, "INFO").into(), before: 0 });
        let mut lines = Lines::resume(wanted(), 4, time(4), 4);
        let mut told = Vec::new();
        while let Some(Told::News(news)) = slow.next().now_or_never() {
            told.push(format!("{news:?}"));
            lines.hear(&news);
        }
        assert_eq!(told, ["Restarted"]);
        while let Next::Send(_) = lines.next() {}
        assert_eq!(lines.next(), Next::Read(1), "the new line is read");
    }

    #[test]
    fn a_follower_that_comes_later_hears_nothing_of_before() {
        let hub = Hub::default();
        let _first = hub.enter(MINE);
        hub.restarted();
        hub.gap(1);
        assert_eq!(told(&mut hub.enter(MINE)), "nothing");
    }
}
