//! The sessions that this process holds, for what concerns several of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use roadstead_proto::api::v1::{ProviderReadinessObservation, SessionRedirect};
use tokio::sync::watch;
use uuid::Uuid;

use crate::end::End;
use crate::outbox::Outbox;
use crate::readiness::{Readiness, Refused};
use crate::reporter::Reporter;

/// What a session is told from outside.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) close: Option<Close>,
    /// The newest token of the sandbox that was seen here is good until then.
    pub(crate) token_expires: SystemTime,
}

/// When to end, why, and where to send the supervisor, if anywhere.
#[derive(Clone, Debug)]
pub(crate) struct Close {
    pub(crate) at: Instant,
    pub(crate) end: End,
    pub(crate) to: Option<Arc<SessionRedirect>>,
}

/// All sessions, by sandbox and session.
#[derive(Default)]
pub(crate) struct Sessions {
    held: Mutex<BTreeMap<(Uuid, Uuid), Held>>,
}

struct Held {
    /// Of the token that it was opened with.
    generation: u64,
    movable_at: Option<Instant>,
    /// The end of the token about which its supervisor was asked to connect again.
    asked: Option<SystemTime>,
    orders: watch::Sender<Orders>,
    outbox: Arc<Outbox>,
    reporter: Arc<Reporter>,
    readiness: Arc<Mutex<Readiness>>,
}

/// A session as it enters.
pub(crate) struct Entering<'a> {
    pub(crate) sandbox_id: Uuid,
    pub(crate) generation: u64,
    pub(crate) token_expires: SystemTime,
    /// Whether its hello said that it observes the readiness of providers.
    pub(crate) readiness_announced: bool,
    /// From when on it may be handed over for the sake of balance. None: its supervisor follows no redirect.
    pub(crate) movable_at: Option<Instant>,
    pub(crate) outbox: &'a Arc<Outbox>,
    pub(crate) reporter: &'a Arc<Reporter>,
}

/// The session is not one that this process holds, or not with a token of that generation.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("observation.session_id is not the live session of the sandbox")]
pub(crate) struct NotHeld;

/// A session's place among them; it is given up when dropped.
pub(crate) struct Place {
    sessions: Arc<Sessions>,
    key: (Uuid, Uuid),
    pub(crate) orders: watch::Receiver<Orders>,
    readiness: Arc<Mutex<Readiness>>,
}

/// How far behind supervisors are with their answers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unanswered {
    pub(crate) sessions: usize,
    pub(crate) oldest: Duration,
}

impl Sessions {
    /// Enters a session.
    pub(crate) fn enter(self: &Arc<Self>, entering: Entering<'_>) -> Place {
        let Entering { sandbox_id, generation, token_expires, readiness_announced, movable_at, outbox, reporter } =
            entering;
        let (sender, orders) = watch::channel(Orders { close: None, token_expires });
        let session_id = reporter.session_id();
        let readiness = Arc::new(Mutex::new(Readiness::new(session_id, readiness_announced)));
        let key = (sandbox_id, session_id);
        let held = Held {
            generation,
            movable_at,
            asked: None,
            orders: sender,
            outbox: Arc::clone(outbox),
            reporter: Arc::clone(reporter),
            readiness: Arc::clone(&readiness),
        };
        self.lock().insert(key, held);
        Place { sessions: Arc::clone(self), key, orders, readiness }
    }

    /// Takes in what a session observes of providers, as its sandbox says with a token of that generation.
    ///
    /// # Errors
    ///
    /// The session is not held here, or the observation is refused.
    pub(crate) fn observe(
        &self,
        key: (Uuid, Uuid),
        generation: u64,
        observation: ProviderReadinessObservation,
        now: Instant,
    ) -> Result<Result<(), Refused>, NotHeld> {
        let (readiness, outbox, reporter) = {
            let sessions = self.lock();
            let held = sessions.get(&key).filter(|held| held.generation == generation).ok_or(NotHeld)?;
            (Arc::clone(&held.readiness), Arc::clone(&held.outbox), Arc::clone(&held.reporter))
        };
        let (observed, begins) = {
            let mut readiness = locked(&readiness);
            let nothing_due = readiness.due().is_none();
            (readiness.observe(observation, now), nothing_due && readiness.due().is_some())
        };
        if begins {
            // The session looks anew at what is due. What is merely put off it finds when it looks.
            outbox.wake();
        }
        Ok(observed.map(|told| told.into_iter().for_each(|told| reporter.readiness(told))))
    }

    /// Ends all sessions, spread at random over this time. Supervisors that follow redirects are sent to these targets,
    /// one to each as long as there are any.
    pub(crate) fn close_all(&self, end: End, spread: Duration, targets: Vec<Arc<SessionRedirect>>) {
        let mut targets = targets.into_iter();
        for held in self.lock().values() {
            held.close(end, spread, held.movable_at.and_then(|_| targets.next()));
        }
    }

    /// Sends supervisors to these targets, one to each, for the sake of balance, spread at random over this time; how
    /// many there were that may be sent.
    pub(crate) fn hand_over(&self, targets: Vec<Arc<SessionRedirect>>, spread: Duration) -> usize {
        let (now, sessions) = (Instant::now(), self.lock());
        let movable = sessions.values().filter(|held| held.stays() && held.movable_at.is_some_and(|at| at <= now));
        let moves = targets.into_iter().zip(movable).map(|(to, held)| held.close(End::Rebalanced, spread, Some(to)));
        moves.count()
    }

    /// The sandbox has a token that is good until then.
    pub(crate) fn token_refreshed(&self, sandbox_id: Uuid, expires: SystemTime) {
        let of_sandbox = (sandbox_id, Uuid::nil())..=(sandbox_id, Uuid::max());
        for held in self.lock().range(of_sandbox).map(|(_, held)| held) {
            held.orders.send_modify(|orders| orders.token_expires = orders.token_expires.max(expires));
        }
    }

    /// Asks supervisors whose tokens have run out to connect again there, once for each token. Their sessions stand until
    /// the tokens count no more. Who has just come by a redirect is left alone, or would be sent round and round.
    pub(crate) fn ask_over_age(&self, now: SystemTime, to: &Arc<SessionRedirect>) {
        let settled = Instant::now();
        for held in self.lock().values_mut() {
            let expires = held.orders.borrow().token_expires;
            let is_news = expires <= now && held.asked != Some(expires);
            if is_news && held.stays() && held.movable_at.is_some_and(|at| at <= settled) {
                held.asked = Some(expires);
                held.outbox.ask(Arc::clone(to));
            }
        }
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

impl Held {
    fn close(&self, end: End, spread: Duration, to: Option<Arc<SessionRedirect>>) {
        let at = Instant::now() + spread.mul_f64(rand::random());
        self.orders.send_modify(|orders| {
            orders.close.get_or_insert(Close { at, end, to });
        });
    }

    fn stays(&self) -> bool {
        self.orders.borrow().close.is_none()
    }
}

impl Place {
    /// Lets what was observed too long ago no longer count; whether it counted until now.
    pub(crate) fn lapse(&self, reporter: &Reporter, now: Instant) -> bool {
        let lapsed = locked(&self.readiness).lapse(now);
        let counted = lapsed.is_some();
        lapsed.into_iter().for_each(|told| reporter.readiness(told));
        counted
    }

    /// When that is due.
    pub(crate) fn lapse_due(&self) -> Option<Instant> {
        locked(&self.readiness).due()
    }
}

fn locked(readiness: &Mutex<Readiness>) -> MutexGuard<'_, Readiness> {
    readiness.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Place {
    fn drop(&mut self) {
        self.sessions.lock().remove(&self.key);
    }
}
