//! The sessions that this process holds, for what concerns several of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;
use uuid::Uuid;

use crate::end::End;
use crate::outbox::Outbox;

/// What a session is told from outside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Orders {
    /// End then, and why.
    pub(crate) close: Option<(Instant, End)>,
    /// The newest token of the sandbox that was seen here is good until then.
    pub(crate) token_expires: SystemTime,
}

/// All sessions, by sandbox and session.
#[derive(Default)]
pub(crate) struct Sessions {
    held: Mutex<BTreeMap<(Uuid, Uuid), Held>>,
}

struct Held {
    orders: watch::Sender<Orders>,
    outbox: Arc<Outbox>,
}

/// A session's place among them; it is given up when dropped.
pub(crate) struct Place {
    sessions: Arc<Sessions>,
    key: (Uuid, Uuid),
    pub(crate) orders: watch::Receiver<Orders>,
}

/// How far behind supervisors are with their answers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unanswered {
    pub(crate) sessions: usize,
    pub(crate) oldest: Duration,
}

impl Sessions {
    /// Enters a session.
    pub(crate) fn enter(
        self: &Arc<Self>,
        sandbox_id: Uuid,
        session_id: Uuid,
        token_expires: SystemTime,
        outbox: &Arc<Outbox>,
    ) -> Place {
        let (sender, orders) = watch::channel(Orders { close: None, token_expires });
        let key = (sandbox_id, session_id);
        self.lock().insert(key, Held { orders: sender, outbox: Arc::clone(outbox) });
        Place { sessions: Arc::clone(self), key, orders }
    }

    /// Ends all sessions, spread at random over this time.
    pub(crate) fn close_all(&self, end: End, spread: Duration) {
        let now = Instant::now();
        for held in self.lock().values() {
            let at = now + spread.mul_f64(rand::random());
            held.orders.send_modify(|orders| {
                orders.close.get_or_insert((at, end));
            });
        }
    }

    /// The sandbox has a token that is good until then.
    pub(crate) fn token_refreshed(&self, sandbox_id: Uuid, expires: SystemTime) {
        let of_sandbox = (sandbox_id, Uuid::nil())..=(sandbox_id, Uuid::max());
        for held in self.lock().range(of_sandbox).map(|(_, held)| held) {
            held.orders.send_modify(|orders| orders.token_expires = orders.token_expires.max(expires));
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// How far behind their supervisors are.
    pub(crate) fn unanswered(&self, now: Instant) -> Unanswered {
        let outboxes: Vec<_> = self.lock().values().map(|held| Arc::clone(&held.outbox)).collect();
        let since = outboxes.iter().filter_map(|outbox| outbox.unanswered_since());
        since.fold(Unanswered::default(), |sum, since| Unanswered {
            sessions: sum.sessions + 1,
            oldest: sum.oldest.max(now.saturating_duration_since(since)),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Uuid, Uuid), Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.sessions.lock().remove(&self.key);
    }
}
