//! When something is done, and done again.

use std::time::Duration;

use rand::Rng as _;
use tokio::time::Instant;

use crate::backoff::Backoff;

/// Pauses between attempts at what has none of its own.
const BACKOFF: Backoff =
    Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(60), steady: Duration::ZERO };

/// A time, or none, and how often it did not help.
pub(super) struct Retry {
    at: Option<Instant>,
    failures: u32,
    backoff: Backoff,
}

impl Retry {
    /// Not before somebody says so.
    pub(super) const fn never() -> Self {
        Self::with(BACKOFF)
    }

    /// The same, with pauses of its own after failures.
    pub(super) const fn with(backoff: Backoff) -> Self {
        Self { at: None, failures: 0, backoff }
    }

    /// At once.
    pub(super) fn now() -> Self {
        Self::at(Some(Instant::now()))
    }

    /// At that time, if there is one.
    pub(super) const fn at(at: Option<Instant>) -> Self {
        Self { at, ..Self::never() }
    }

    /// Whether a time is set.
    pub(super) const fn is_set(&self) -> bool {
        self.at.is_some()
    }

    /// Waits until it is time; for ever if no time is set.
    pub(super) async fn due(&self) {
        match self.at {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// It is under way: no time is set until it has come to something.
    pub(super) const fn begun(&mut self) {
        self.at = None;
    }

    /// At once, whatever was set; what failed before stays counted.
    pub(super) fn hurry(&mut self) {
        self.at = Some(Instant::now());
    }

    /// It helped; not again before somebody says so.
    pub(super) const fn done(&mut self) {
        (self.at, self.failures) = (None, 0);
    }

    /// It helped; again after that pause.
    pub(super) fn again_in(&mut self, pause: Duration) {
        (self.at, self.failures) = (Some(Instant::now() + pause), 0);
    }

    /// It did not help; again after a pause that grows.
    pub(super) fn failed(&mut self) {
        self.at = Some(Instant::now() + self.backoff.pause(self.failures, rand::rng().random()));
        self.failures = self.failures.saturating_add(1);
    }
}
