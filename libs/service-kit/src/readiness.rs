//! Whether a role is ready: a set of latches, each released once and for good, so that readiness never falls because
//! a dependency is away for a while. A [`Condition`] may come and go; it is for what makes serving wrong, not worse.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

/// What the role still waits for. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<watch::Sender<State>>);

#[derive(Debug, Default)]
struct State {
    /// Latches not yet released and conditions that do not hold, counted by name.
    waiting_for: BTreeMap<&'static str, usize>,
}

/// One thing that has to happen before the role is ready.
#[derive(Debug)]
#[must_use = "a latch that is dropped is never released"]
pub struct Latch {
    name: &'static str,
    readiness: Readiness,
}

/// One thing that has to hold for the role to be ready.
#[derive(Debug)]
pub struct Condition {
    name: &'static str,
    readiness: Readiness,
    holds: bool,
}

impl Default for Readiness {
    fn default() -> Self {
        Self::new()
    }
}

impl Readiness {
    /// Ready, until the first latch is taken.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(State::default())))
    }

    /// Takes a latch; the role is not ready until it is released.
    pub fn latch(&self, name: &'static str) -> Latch {
        self.wait_for(name);
        Latch { name, readiness: self.clone() }
    }

    /// A condition that holds until it is told otherwise.
    #[must_use]
    pub fn condition(&self, name: &'static str) -> Condition {
        Condition { name, readiness: self.clone(), holds: true }
    }

    /// Names of what the role waits for; empty if it is ready.
    #[must_use]
    pub fn waiting_for(&self) -> Vec<&'static str> {
        self.0.borrow().waiting_for.keys().copied().collect()
    }

    /// Whether it waits for nothing.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.0.borrow().waiting_for.is_empty()
    }

    /// Waits until the role is ready.
    pub async fn ready(&self) {
        // Fails only if the sender is gone, and `self` holds it.
        let _gone = self.0.subscribe().wait_for(|state| state.waiting_for.is_empty()).await.is_err();
    }

    fn wait_for(&self, name: &'static str) {
        self.0.send_modify(|state| *state.waiting_for.entry(name).or_default() += 1);
    }

    fn arrived(&self, name: &'static str) {
        self.0.send_modify(|state| {
            if let Some(count) = state.waiting_for.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    state.waiting_for.remove(name);
                }
            }
        });
    }
}

impl Latch {
    /// It has happened.
    pub fn release(self) {
        tracing::info!(latch = self.name, "released");
        self.readiness.arrived(self.name);
    }
}

impl Condition {
    /// Says whether it holds now.
    pub fn set(&mut self, holds: bool) {
        if holds == self.holds {
            return;
        }
        self.holds = holds;
        if holds {
            tracing::info!(condition = self.name, "holds again");
            self.readiness.arrived(self.name);
        } else {
            tracing::warn!(condition = self.name, "does not hold; not ready");
            self.readiness.wait_for(self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Readiness;

    #[test]
    fn is_ready_when_the_last_latch_is_released() {
        let readiness = Readiness::new();
        let (broker, database) = (readiness.latch("broker"), readiness.latch("database"));
        assert_eq!(readiness.waiting_for(), ["broker", "database"]);
        database.release();
        assert_eq!(readiness.waiting_for(), ["broker"]);
        broker.release();
        assert!(readiness.is_ready());
    }

    #[test]
    fn a_latch_that_is_dropped_stays_closed() {
        let readiness = Readiness::new();
        drop(readiness.latch("broker"));
        assert!(!readiness.is_ready());
    }

    #[test]
    fn a_condition_comes_and_goes() {
        let readiness = Readiness::new();
        let mut clock = readiness.condition("clock");
        assert!(readiness.is_ready());
        clock.set(false);
        clock.set(false);
        assert_eq!(readiness.waiting_for(), ["clock"]);
        clock.set(true);
        assert!(readiness.is_ready());
    }

    #[test]
    fn latches_of_the_same_name_are_all_waited_for() {
        let readiness = Readiness::new();
        let (one, two) = (readiness.latch("feed"), readiness.latch("feed"));
        one.release();
        assert!(!readiness.is_ready());
        two.release();
        assert!(readiness.is_ready());
    }

    #[tokio::test]
    async fn whoever_waits_is_woken() {
        let readiness = Readiness::new();
        let latch = readiness.latch("broker");
        let waiting = tokio::spawn({
            let readiness = readiness.clone();
            async move { readiness.ready().await }
        });
        latch.release();
        waiting.await.unwrap();
    }
}
