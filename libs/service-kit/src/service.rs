//! What every role begins with and ends with.

use std::net::SocketAddr;
use std::time::Duration;

use roadstead_proto::role::Role;
use tokio_util::sync::DropGuard;

use crate::admin::{AdminPort, BindError};
use crate::metrics::Metrics;
use crate::readiness::Readiness;
use crate::settings::AdminSettings;
use crate::shutdown::Shutdown;
use crate::tasks::{Phase, Stopped, Tasks};

/// A role that is running: it is alive from [`Service::start`] on, ready when its latches are released, and stops in
/// order at the end of [`Service::run`]. If it is dropped before, its tasks are told to stop.
#[derive(Debug)]
pub struct Service {
    pub readiness: Readiness,
    pub metrics: Metrics,
    pub tasks: Tasks,
    role: Role,
    admin: SocketAddr,
    drain_deadline: Duration,
    _stop_when_dropped: [DropGuard; 2],
}

impl Service {
    /// Opens the admin port and answers there.
    ///
    /// # Errors
    /// If the port cannot be opened.
    pub async fn start(role: Role, settings: &AdminSettings) -> Result<Self, BindError> {
        let (readiness, metrics, tasks) = (Readiness::new(), Metrics::new(role), Tasks::new());
        let port = AdminPort::bind(settings.address(role)).await?;
        let admin = port.address();
        tracing::info!(%role, %admin, "started");
        tasks.essential(Phase::Background, "admin port", |stop| port.serve(readiness.clone(), metrics.clone(), stop));
        let stop_when_dropped =
            [Phase::Serving, Phase::Background].map(|phase| tasks.stop_token(phase).clone().drop_guard());
        let drain_deadline = settings.drain_deadline();
        Ok(Self { readiness, metrics, tasks, role, admin, drain_deadline, _stop_when_dropped: stop_when_dropped })
    }

    /// Where the admin port is.
    #[must_use]
    pub const fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Runs until shutdown is requested or an essential task ends, then drains (see [`Tasks::run`]).
    ///
    /// # Errors
    /// [`Stopped`], if it was not an orderly end.
    pub async fn run(self, shutdown: &Shutdown) -> Result<(), Stopped> {
        let ended = self.tasks.run(shutdown, self.drain_deadline).await;
        tracing::info!(role = %self.role, "stopped");
        ended
    }
}
