//! What is to be done when its turn comes, once for all who wait for it. The broker hands out a newer mark of an object while
//! the older one is in hand; without this each would be worked off.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};

/// What has not begun yet. Cheap to clone.
#[derive(Debug)]
pub(crate) struct Coming<K, T>(Arc<Mutex<Waiting<K, T>>>);

type Waiting<K, T> = HashMap<K, Shared<BoxFuture<'static, T>>>;

impl<K, T> Clone for Coming<K, T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K, T> Default for Coming<K, T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K, T> Coming<K, T>
where
    K: Copy + Eq + Hash + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    /// Does `work` with its `turn` when that has come; or, if the same still waits for its turn, waits for that. Either way
    /// it begins after this was called.
    pub(crate) fn join<G, F>(
        &self,
        key: K,
        turn: impl Future<Output = G> + Send + 'static,
        work: impl FnOnce(G) -> F + Send + 'static,
    ) -> Shared<BoxFuture<'static, T>>
    where
        G: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let waiting = self.clone();
        let begin = || {
            let coming = async move {
                let turn = turn.await;
                drop(waiting.lock().remove(&key));
                work(turn).await
            };
            coming.boxed().shared()
        };
        self.lock().entry(key).or_insert_with(begin).clone()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<K, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn those_who_wait_for_the_same_turn_have_one_work_and_whoever_comes_after_it_began_another() {
        let (coming, turns, works) = (Coming::default(), Arc::new(Semaphore::new(0)), Arc::new(AtomicU32::new(0)));
        let (began, end) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let join = |key: u8| {
            let (turns, works, began, end) = (turns.clone(), works.clone(), began.clone(), end.clone());
            let turn = async move { turns.acquire_owned().await.unwrap().forget() };
            coming.join(key, turn, |()| async move {
                began.add_permits(1);
                end.acquire().await.unwrap().forget();
                works.fetch_add(1, Ordering::Relaxed)
            })
        };
        let (mut first, second, other) = (join(1), join(1), join(2));
        turns.add_permits(3);
        assert!((&mut first).now_or_never().is_none(), "it has begun and does not end yet");
        assert_eq!(began.available_permits(), 1);
        let late = join(1);
        end.add_permits(3);
        assert_eq!((first.await, second.await, other.await, late.await), (0, 0, 1, 2));
        assert!(coming.lock().is_empty());
    }
}
