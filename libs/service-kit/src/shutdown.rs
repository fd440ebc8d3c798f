//! Asking a process to stop: once to drain, twice to stop at once.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A request to stop, shared by everything that runs in the process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    requested: CancellationToken,
    cut: CancellationToken,
}

impl Shutdown {
    /// One that only [`Self::request`] sets off.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One that SIGTERM and SIGINT set off; the second signal cuts the drain short. To be called within the runtime.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub fn on_signals() -> io::Result<Self> {
        let shutdown = Self::new();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let signalled = shutdown.clone();
        #[allow(clippy::disallowed_methods, reason = "lives as long as the process, and outlives its tasks")]
        tokio::spawn(async move {
            for ask in [Self::request, Self::cut_now] {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                ask(&signalled);
            }
        });
        Ok(shutdown)
    }

    /// Asks for an orderly stop.
    pub fn request(&self) {
        self.requested.cancel();
    }

    /// Asks to stop at once.
    pub fn cut_now(&self) {
        self.requested.cancel();
        self.cut.cancel();
    }

    /// Whether a stop was asked for.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.requested.is_cancelled()
    }

    /// Waits until a stop is asked for.
    pub async fn requested(&self) {
        self.requested.cancelled().await;
    }

    /// Waits until a stop at once is asked for.
    pub async fn cut(&self) {
        self.cut.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::{Signal, raise};

    use super::*;

    #[tokio::test]
    async fn the_first_signal_asks_and_the_second_cuts() {
        let shutdown = Shutdown::on_signals().unwrap();
        raise(Signal::SIGTERM).unwrap();
        shutdown.requested().await;
        assert!(!shutdown.cut.is_cancelled());
        raise(Signal::SIGINT).unwrap();
        shutdown.cut().await;
    }

    #[tokio::test]
    async fn to_cut_is_also_to_ask() {
        let shutdown = Shutdown::new();
        assert!(!shutdown.is_requested());
        shutdown.cut_now();
        shutdown.requested().await;
        assert!(shutdown.is_requested());
    }
}
