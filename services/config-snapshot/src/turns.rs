//! Who builds next of those that wait: workspaces in turn, so that one with a single sandbox does not wait behind one with
//! thousands.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;
use uuid::Uuid;

/// Turns, so many at a time. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Turns(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    free: usize,
    waiting: RoundRobin<Uuid, oneshot::Sender<Turn>>,
}

/// Somebody's turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    /// None once it was passed on.
    turns: Option<Turns>,
}

impl Turns {
    /// So many turns at a time.
    #[must_use]
    pub(crate) fn new(at_a_time: usize) -> Self {
        Self(Arc::new(Mutex::new(State { free: at_a_time, waiting: RoundRobin::default() })))
    }

    /// Waits for the next turn of that workspace.
    pub(crate) async fn next(&self, workspace_id: Uuid) -> Turn {
        let granted = self.with(|state| {
            if let Some(left) = state.free.checked_sub(1) {
                state.free = left;
                return None;
            }
            let (sender, granted) = oneshot::channel();
            state.waiting.push(workspace_id, sender);
            Some(granted)
        });
        match granted {
            None => Turn { turns: Some(self.clone()) },
            Some(granted) => match granted.await {
                Ok(turn) => turn,
                // The sender is dropped only when it was used, or with all turns, and these are borrowed.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// How many wait, with those who are gone and were not found to be.
    pub(crate) fn waiting(&self) -> usize {
        self.with(|state| state.waiting.len())
    }

    /// Passes a turn on to the next who is still there.
    fn pass_on(&self) {
        loop {
            let next = self.with(|state| {
                let next = state.waiting.pop();
                state.free += usize::from(next.is_none());
                next
            });
            let Some(next) = next else { return };
            match next.send(Turn { turns: Some(self.clone()) }) {
                Ok(()) => return,
                Err(mut refused) => drop(refused.turns.take()),
            }
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.turns.take() {
            turns.pass_on();
        }
    }
}

/// Values that come out by keys in turn, and in the order in which they came for each key.
#[derive(Debug)]
struct RoundRobin<K, V> {
    /// No queue is empty.
    queues: BTreeMap<K, VecDeque<V>>,
    /// Each key of the queues, the next one in front.
    order: VecDeque<K>,
}

impl<K, V> Default for RoundRobin<K, V> {
    fn default() -> Self {
        Self { queues: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<K: Ord + Copy, V> RoundRobin<K, V> {
    fn push(&mut self, key: K, value: V) {
        self.queues
            .entry(key)
            .or_insert_with(|| {
                self.order.push_back(key);
                VecDeque::new()
            })
            .push_back(value);
    }

    fn len(&self) -> usize {
        self.queues.values().map(VecDeque::len).sum()
    }

    fn pop(&mut self) -> Option<V> {
        let key = self.order.pop_front()?;
        let queue = self.queues.get_mut(&key)?;
        let value = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&key);
        } else {
            self.order.push_back(key);
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever waits, between two values of one key no other key that waits all the time is left out, and each key's
        /// values keep their order.
        #[test]
        fn keys_take_turns(keys in proptest::collection::vec(0_u8..5, 0..60)) {
            let mut waiting = RoundRobin::default();
            for (at, key) in keys.iter().enumerate() {
                waiting.push(*key, (*key, at));
            }
            prop_assert_eq!(waiting.len(), keys.len());
            let out: Vec<_> = std::iter::from_fn(|| waiting.pop()).collect();
            prop_assert_eq!(out.len(), keys.len());
            let of = |key| out.iter().filter(move |(of, _)| *of == key).map(|(_, at)| *at);
            for key in 0..5 {
                prop_assert!(of(key).is_sorted());
            }
            // The n-th of a key comes before the n+1-th of any other.
            let round = |place: usize| out[..place].iter().filter(|(key, _)| *key == out[place].0).count();
            prop_assert!((0..out.len()).map(round).is_sorted());
            prop_assert!(waiting.queues.is_empty() && waiting.order.is_empty());
        }
    }

    #[tokio::test]
    async fn a_workspace_with_one_sandbox_is_next_however_many_another_has_waiting() {
        let turns = Turns::new(1);
        let [large, small] = [1, 2].map(Uuid::from_u128);
        let first = turns.next(large).await;
        let mut waiting: Vec<_> = (0..1000).map(|_| Box::pin(turns.next(large))).collect();
        assert!(waiting.iter_mut().all(|next| next.now_or_never().is_none()));
        let mut one = Box::pin(turns.next(small));
        assert!((&mut one).now_or_never().is_none());
        assert_eq!(turns.waiting(), 1001);
        drop(first);
        assert_eq!(turns.waiting(), 1000);
        let second = waiting.remove(0).now_or_never().expect("it was first");
        assert!((&mut one).now_or_never().is_none(), "one turn at a time");
        drop(second);
        assert!(one.now_or_never().is_some(), "the other 999 wait behind it");
    }

    #[tokio::test]
    async fn a_turn_of_somebody_who_is_gone_is_anothers() {
        let (turns, workspace) = (Turns::new(1), Uuid::nil());
        let first = turns.next(workspace).await;
        let mut gone: Vec<_> = (0..3).map(|_| Box::pin(turns.next(workspace))).collect();
        assert!(gone.iter_mut().all(|next| next.now_or_never().is_none()));
        let mut there = Box::pin(turns.next(workspace));
        assert!((&mut there).now_or_never().is_none());
        gone.truncate(1);
        drop(first);
        // Granted, and gone before it was taken.
        gone.clear();
        drop(there.now_or_never().expect("the others are gone"));
        assert!(turns.next(workspace).now_or_never().is_some(), "no turn was lost");
    }
}
