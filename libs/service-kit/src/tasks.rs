//! The tasks of one role. Each has a name, belongs to a phase of shutdown and says whether the role can go on
//! without it.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::shutdown::Shutdown;

/// When a task is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// First: what takes work from outside (listeners, streams, pull loops). It takes nothing new, finishes what it
    /// has, and ends.
    Serving,
    /// Then: what serving tasks need while they finish (relays, followers, renewals, the admin port).
    Background,
}

/// Why a role stopped other than by being asked to and finishing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// A task without which the role cannot go on.
    #[error("task {task} {ending}")]
    Essential { task: &'static str, ending: Ending },
    /// The deadline passed, or a second signal came, with tasks still at work.
    #[error("stopped before these tasks had finished: {}", .0.join(", "))]
    Cut(Vec<&'static str>),
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ending {
    #[error("ended though nobody had asked it to")]
    Early,
    #[error("failed: {0}")]
    Failed(String),
    #[error("panicked")]
    Panicked,
}

/// Starts tasks and stops them in order. Cheap to clone; all clones are of the same set.
#[derive(Clone)]
pub struct Tasks {
    serving: Group,
    background: Group,
    shared: Arc<Shared>,
}

#[derive(Clone)]
struct Group {
    stop: CancellationToken,
    tracker: TaskTracker,
}

#[derive(Default)]
struct Shared {
    running: Mutex<Vec<&'static str>>,
    /// The first essential task's end.
    fatal: Mutex<Option<Stopped>>,
    fatal_came: Notify,
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}

impl Tasks {
    /// An empty set.
    #[must_use]
    pub fn new() -> Self {
        let group = || Group { stop: CancellationToken::new(), tracker: TaskTracker::new() };
        Self { serving: group(), background: group(), shared: Arc::default() }
    }

    /// Starts a task the role cannot do without: if it ends before it is told to, [`Self::run`] stops the role with
    /// its name. `start` gets the token that tells it to stop.
    pub fn essential<F, E>(&self, phase: Phase, name: &'static str, start: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display,
    {
        self.spawn(phase, name, true, start);
    }

    /// Starts a task that may end whenever it has nothing more to do; if it fails, that is logged.
    pub fn optional<F, E>(&self, phase: Phase, name: &'static str, start: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display,
    {
        self.spawn(phase, name, false, start);
    }

    /// The token that tells the tasks of a phase to stop.
    #[must_use]
    pub const fn stop_token(&self, phase: Phase) -> &CancellationToken {
        &self.group(phase).stop
    }

    /// Waits until shutdown is requested or an essential task ends early, then stops everything in order: serving
    /// tasks, then background tasks. They get `deadline` together; tasks that are still at work then are left to the
    /// end of the runtime.
    ///
    /// # Errors
    /// [`Stopped`], if it was not an orderly end.
    pub async fn run(&self, shutdown: &Shutdown, deadline: Duration) -> Result<(), Stopped> {
        tokio::select! {
            () = shutdown.requested() => tracing::info!("shutdown requested; draining"),
            () = self.shared.fatal_came.notified() => tracing::error!("an essential task ended; draining"),
        }
        let drained = tokio::select! {
            drained = tokio::time::timeout(deadline, self.drain()) => drained.is_ok(),
            () = shutdown.cut() => false,
        };
        if let Some(stopped) = lock(&self.shared.fatal).take() {
            return Err(stopped);
        }
        if drained { Ok(()) } else { Err(Stopped::Cut(lock(&self.shared.running).clone())) }
    }

    async fn drain(&self) {
        for group in [&self.serving, &self.background] {
            group.stop.cancel();
            group.tracker.close();
            group.tracker.wait().await;
        }
    }

    fn spawn<F, E>(&self, phase: Phase, name: &'static str, essential: bool, start: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display,
    {
        let group = self.group(phase);
        let stop = group.stop.clone();
        let task = start(stop.clone());
        let shared = Arc::clone(&self.shared);
        lock(&shared.running).push(name);
        let supervised = async move {
            let outcome = AssertUnwindSafe(task).catch_unwind().await;
            shared.ended(name);
            let ending = match outcome {
                Ok(Ok(())) if !essential || stop.is_cancelled() => return,
                Ok(Ok(())) => Ending::Early,
                Ok(Err(error)) => Ending::Failed(error.to_string()),
                Err(_) => Ending::Panicked,
            };
            tracing::error!(task = name, essential, "task {ending}");
            if essential {
                shared.fail(Stopped::Essential { task: name, ending });
            }
        };
        group.tracker.spawn(supervised.instrument(tracing::info_span!("task", name)));
    }

    const fn group(&self, phase: Phase) -> &Group {
        match phase {
            Phase::Serving => &self.serving,
            Phase::Background => &self.background,
        }
    }
}

impl Shared {
    fn ended(&self, name: &'static str) {
        let mut running = lock(&self.running);
        if let Some(at) = running.iter().position(|running| *running == name) {
            running.swap_remove(at);
        }
    }

    fn fail(&self, stopped: Stopped) {
        lock(&self.fatal).get_or_insert(stopped);
        self.fatal_came.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Tasks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tasks").field("running", &lock(&self.shared.running)).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
