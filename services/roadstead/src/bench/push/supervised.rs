//! A supervisor, and the newest that it has seen.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use roadstead_supervisor::{Behaviour, Observation, Observer, Settings, Supervisor, TokenSource};
use tokio::sync::watch;

use crate::bench::stage::WORKSPACE;

/// Whatever it waits for takes at most so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A number, and when it was seen first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) number: u64,
    pub(crate) at: Instant,
}

/// The newest of each kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Sessions that it had, the open one included.
    pub(crate) sessions: At,
    /// Tells one configuration from another; says nothing of their order. 0: none.
    pub(crate) config: At,
    /// Revision of the sandbox's own settings.
    pub(crate) settings: At,
}

/// A running supervisor. It stops when it is dropped.
#[derive(Debug)]
pub(crate) struct Supervised {
    supervisor: Supervisor,
    seen: watch::Receiver<Seen>,
}

impl Supervised {
    /// Starts it, and waits until it has a configuration.
    pub(crate) async fn start(bridge: &str, sandbox: &str, token: TokenSource) -> anyhow::Result<Self> {
        let (sender, seen) = watch::channel(Seen::nothing());
        let observer = Observer::new(move |observation| sender.send_modify(|seen| seen.add(&observation)));
        let settings = Settings { observer: Some(observer), ..Settings::new(bridge, WORKSPACE, sandbox, token) };
        let mut supervised = Self { supervisor: Supervisor::start(settings)?, seen };
        supervised.until(|seen| seen.config.number > 0).await?;
        Ok(supervised)
    }

    /// The newest so far.
    pub(crate) fn newest(&self) -> Seen {
        *self.seen.borrow()
    }

    /// Changes how it treats updates, from the next one on.
    pub(crate) fn behave(&self, behaviour: Behaviour) {
        self.supervisor.behave(behaviour);
    }

    /// Waits until it has seen what is wanted.
    pub(crate) async fn until(&mut self, wanted: impl FnMut(&Seen) -> bool) -> anyhow::Result<Seen> {
        let waited = tokio::time::timeout(PATIENCE, self.seen.wait_for(wanted)).await;
        match waited.map(|seen| seen.map(|seen| *seen)) {
            Ok(seen) => seen.context("a supervisor has ended"),
            Err(_) => {
                let status = self.supervisor.status();
                let last_end = status.borrow().last_end.clone();
                bail!("a supervisor waits in vain; the last end of a session: {last_end:?}")
            }
        }
    }
}

impl Seen {
    fn nothing() -> Self {
        let none = At { number: 0, at: Instant::now() };
        Self { sessions: none, config: none, settings: none }
    }

    fn add(&mut self, observation: &Observation) {
        match observation {
            Observation::Accepted { at, .. } => self.sessions = At { number: self.sessions.number + 1, at: *at },
            Observation::Received(frame) => {
                if let Some(config) = &frame.config {
                    self.config.become_at(config.config_revision, frame.at);
                    self.settings.become_at(config.settings_revision, frame.at);
                }
            }
            _ => {}
        }
    }
}

impl At {
    fn become_at(&mut self, number: u64, at: Instant) {
        if self.number != number {
            *self = Self { number, at };
        }
    }
}
