//! One session, as it is told something from outside.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use roadstead_proto::api::v1::{ProviderReadinessObservation, SessionRedirect};
use roadstead_proto::internal::SandboxEntry;
use uuid::Uuid;

use super::{Key, Sessions};
use crate::end::End;
use crate::outbox::Outbox;
use crate::over::Known;
use crate::readiness::{Readiness, Refused};
use crate::reporter::Reporter;

/// How long a session outlives its token: the leeway that its verification has too.
const LEEWAY: Duration = Duration::from_secs(60);

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

impl Orders {
    /// The session stands until then, unless a newer token is seen here.
    pub(crate) fn token_limit(&self) -> SystemTime {
        self.token_expires + LEEWAY
    }
}

/// A session as it enters.
pub(crate) struct Entering<'a> {
    pub(crate) sandbox_id: Uuid,
    pub(crate) generation: u64,
    pub(crate) token_expires: SystemTime,
    /// Whether it came where a bridge sent it.
    pub(crate) redirected: bool,
    /// Whether its hello said that it observes the readiness of providers.
    pub(crate) readiness_announced: bool,
    /// From when on it may be handed over for the sake of balance. None: its supervisor follows no redirect.
    pub(crate) movable_at: Option<Instant>,
    /// What the registration said of the sandbox's row.
    pub(crate) known: Known,
    pub(crate) outbox: &'a Arc<Outbox>,
    pub(crate) reporter: &'a Arc<Reporter>,
}

pub(super) struct Held {
    /// Of the token that it was opened with.
    generation: u64,
    movable_at: Option<Instant>,
    /// How long after the end of its token its supervisor is asked to connect again.
    ask_after: Duration,
    told: Mutex<Told>,
    outbox: Arc<Outbox>,
    reporter: Arc<Reporter>,
}

struct Told {
    orders: Orders,
    /// The end of the token with which its supervisor was sent here, or asked to connect again.
    asked: Option<SystemTime>,
    known: Known,
    missed_something: bool,
    readiness: Readiness,
}

/// A session's place among them; it is given up when dropped.
pub(crate) struct Place {
    sessions: Arc<Sessions>,
    key: Key,
    held: Arc<Held>,
}

impl Held {
    pub(super) fn new(entering: Entering<'_>) -> Self {
        let Entering {
            sandbox_id: _,
            generation,
            token_expires,
            redirected,
            readiness_announced,
            movable_at,
            known,
            outbox,
            reporter,
        } = entering;
        let orders = Orders { close: None, token_expires };
        let readiness = Readiness::new(reporter.session_id(), readiness_announced);
        // Who was sent here with this token is not sent on with it, or would go round and round.
        let asked = redirected.then_some(token_expires);
        let told = Mutex::new(Told { orders, asked, known, missed_something: false, readiness });
        // Late: a supervisor that may refresh its token again, after an outage, does so by itself. Each at its own moment.
        let ask_after = LEEWAY.mul_f64(0.5 + rand::random::<f64>() / 4.0);
        Self { generation, movable_at, ask_after, told, outbox: Arc::clone(outbox), reporter: Arc::clone(reporter) }
    }

    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Takes in what it observes of providers.
    pub(super) fn observe(&self, observation: ProviderReadinessObservation, now: Instant) -> Result<(), Refused> {
        let (observed, begins) = {
            let readiness = &mut self.told().readiness;
            let nothing_due = readiness.due().is_none();
            (readiness.observe(observation, now), nothing_due && readiness.due().is_some())
        };
        if begins {
            // What is merely put off it finds when it looks.
            self.outbox.nudge();
        }
        observed.map(|told| told.into_iter().for_each(|told| self.reporter.readiness(told)))
    }

    /// Lets it end within this time, if it was not told to end before.
    pub(super) fn close(&self, end: End, spread: Duration, to: Option<Arc<SessionRedirect>>) {
        let at = Instant::now() + spread.mul_f64(rand::random());
        self.told().orders.close.get_or_insert(Close { at, end, to });
        self.outbox.nudge();
    }

    pub(super) fn token_refreshed(&self, expires: SystemTime) {
        let orders = &mut self.told().orders;
        orders.token_expires = orders.token_expires.max(expires);
    }

    /// Asks its supervisor to connect again there, if its token has run out a while ago and it was not sent anywhere with
    /// it.
    pub(super) fn ask_over_age(&self, now: SystemTime, to: &Arc<SessionRedirect>) {
        let mut told = self.told();
        let expires = told.orders.token_expires;
        let is_news = expires + self.ask_after <= now && told.asked != Some(expires);
        if is_news && told.orders.close.is_none() && self.follows_redirects() {
            told.asked = Some(expires);
            drop(told);
            self.outbox.ask(Arc::clone(to));
        }
    }

    /// The projection shows this of its sandbox. If that ends it, it ends now, whatever it was told before.
    pub(super) fn shown(&self, entry: &SandboxEntry) {
        let mut told = self.told();
        if let Some(end) = told.known.end(entry) {
            told.orders.close = Some(Close { at: Instant::now(), end, to: None });
            drop(told);
            self.outbox.nudge();
        }
    }

    pub(super) fn missed_something(&self) {
        self.told().missed_something = true;
        self.outbox.nudge();
    }

    pub(super) fn stays(&self) -> bool {
        self.told().orders.close.is_none()
    }

    pub(super) const fn follows_redirects(&self) -> bool {
        self.movable_at.is_some()
    }

    pub(super) fn is_movable(&self, now: Instant) -> bool {
        self.movable_at.is_some_and(|at| at <= now)
    }

    pub(super) fn unanswered_since(&self) -> Option<Instant> {
        self.outbox.unanswered_since()
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    pub(super) const fn new(sessions: Arc<Sessions>, key: Key, held: Arc<Held>) -> Self {
        Self { sessions, key, held }
    }

    /// What it was told.
    pub(crate) fn orders(&self) -> Orders {
        self.held.told().orders.clone()
    }

    /// Whether, since this was asked last, the projection may have shown something that was not heard of.
    pub(crate) fn missed_something(&self) -> bool {
        std::mem::take(&mut self.held.told().missed_something)
    }

    /// Lets what was observed too long ago no longer count; whether it counted until now.
    pub(crate) fn lapse(&self, reporter: &Reporter, now: Instant) -> bool {
        let lapsed = self.held.told().readiness.lapse(now);
        let counted = lapsed.is_some();
        lapsed.into_iter().for_each(|told| reporter.readiness(told));
        counted
    }

    /// When that is due.
    pub(crate) fn lapse_due(&self) -> Option<Instant> {
        self.held.told().readiness.due()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.sessions.leave(&self.key);
    }
}
