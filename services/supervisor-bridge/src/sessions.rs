//! The sessions that this process holds, for what concerns several of them.

mod held;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use roadstead_proto::api::v1::{ProviderReadinessObservation, SessionRedirect};
use roadstead_proto::internal::SandboxEntry;
use uuid::Uuid;

pub(crate) use self::held::{Entering, Place};

use self::held::Held;
use crate::end::End;
use crate::readiness::Refused;

/// A session's place among all: its sandbox and itself.
type Key = (Uuid, Uuid);

/// All sessions, by sandbox and session.
#[derive(Default)]
pub(crate) struct Sessions {
    held: Mutex<BTreeMap<Key, Arc<Held>>>,
}

/// The session is not one that this process holds, or not with a token of that generation.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("observation.session_id is not the live session of the sandbox")]
pub(crate) struct NotHeld;

/// How far behind supervisors are with their answers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unanswered {
    pub(crate) sessions: usize,
    pub(crate) oldest: Duration,
}

impl Sessions {
    /// Enters a session.
    pub(crate) fn enter(self: &Arc<Self>, entering: Entering<'_>) -> Place {
        let key = (entering.sandbox_id, entering.reporter.session_id());
        let held = Arc::new(Held::new(entering));
        self.lock().insert(key, Arc::clone(&held));
        Place::new(Arc::clone(self), key, held)
    }

    /// Takes in what a session observes of providers, as its sandbox says with a token of that generation.
    ///
    /// # Errors
    ///
    /// The session is not held here, or the observation is refused.
    pub(crate) fn observe(
        &self,
        key: Key,
        generation: u64,
        observation: ProviderReadinessObservation,
        now: Instant,
    ) -> Result<Result<(), Refused>, NotHeld> {
        let held = self.lock().get(&key).cloned().ok_or(NotHeld)?;
        if held.generation() != generation {
            return Err(NotHeld);
        }
        Ok(held.observe(observation, now))
    }

    /// Ends all sessions, spread at random over this time. Supervisors that follow redirects are sent to these targets,
    /// one to each as long as there are any.
    pub(crate) fn close_all(&self, end: End, spread: Duration, targets: Vec<Arc<SessionRedirect>>) {
        let mut targets = targets.into_iter();
        for held in self.lock().values() {
            held.close(end, spread, if held.follows_redirects() { targets.next() } else { None });
        }
    }

    /// Sends supervisors to these targets, one to each, for the sake of balance, spread at random over this time; how
    /// many there were that may be sent.
    pub(crate) fn hand_over(&self, targets: Vec<Arc<SessionRedirect>>, spread: Duration) -> usize {
        let (now, sessions) = (Instant::now(), self.lock());
        let movable = sessions.values().filter(|held| held.stays() && held.is_movable(now));
        let moves = targets.into_iter().zip(movable).map(|(to, held)| held.close(End::Rebalanced, spread, Some(to)));
        moves.count()
    }

    /// The sandbox has a token that is good until then.
    pub(crate) fn token_refreshed(&self, sandbox_id: Uuid, expires: SystemTime) {
        self.of(sandbox_id, |held| held.token_refreshed(expires));
    }

    /// The projection shows this of the sandbox.
    pub(crate) fn shown(&self, sandbox_id: Uuid, entry: &SandboxEntry) {
        self.of(sandbox_id, |held| held.shown(entry));
    }

    /// The projection may have shown something that this process did not hear of.
    pub(crate) fn missed_something(&self) {
        self.lock().values().for_each(|held| held.missed_something());
    }

    /// Whether there is one of the sandbox.
    pub(crate) fn has(&self, sandbox_id: Uuid) -> bool {
        let mut has = false;
        self.of(sandbox_id, |_| has = true);
        has
    }

    /// Asks supervisors whose tokens have run out to connect again there, once for each token. Their sessions stand until
    /// the tokens count no more. Who came by a redirect is left alone until it has another token.
    pub(crate) fn ask_over_age(&self, now: SystemTime, to: &Arc<SessionRedirect>) {
        self.lock().values().for_each(|held| held.ask_over_age(now, to));
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// How many there are that were not told to end.
    pub(crate) fn staying(&self) -> usize {
        self.lock().values().filter(|held| held.stays()).count()
    }

    /// How far behind their supervisors are.
    pub(crate) fn unanswered(&self, now: Instant) -> Unanswered {
        let all: Vec<_> = self.lock().values().map(Arc::clone).collect();
        let since = all.iter().filter_map(|held| held.unanswered_since());
        since.fold(Unanswered::default(), |sum, since| Unanswered {
            sessions: sum.sessions + 1,
            oldest: sum.oldest.max(now.saturating_duration_since(since)),
        })
    }

    /// Tells each session of the sandbox.
    fn of(&self, sandbox_id: Uuid, mut tell: impl FnMut(&Held)) {
        let of_sandbox = (sandbox_id, Uuid::nil())..=(sandbox_id, Uuid::max());
        self.lock().range(of_sandbox).for_each(|(_, held)| tell(held));
    }

    fn leave(&self, key: &Key) {
        // Dropped when the lock is no longer held.
        let _left = { self.lock().remove(key) };
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Arc<Held>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
