//! What every role begins with and ends with.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::FutureExt as _;
use roadstead_proto::role::Role;
use tokio_util::sync::DropGuard;

use crate::admin::{AdminPort, BindError};
use crate::metrics::Metrics;
use crate::readiness::Readiness;
use crate::settings::AdminSettings;
use crate::shutdown::Shutdown;
use crate::tasks::{Phase, Stopped, Tasks};

/// How long background tasks have after the last call and stream.
const LAST_WORK: Duration = Duration::from_secs(5);

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
        tasks.essential(Phase::Background, "admin port", |stop| {
            port.serve(readiness.clone(), metrics.clone(), stop).map(Ok::<_, Infallible>)
        });
        let stop_when_dropped =
            [Phase::Serving, Phase::Background].map(|phase| tasks.stop_token(phase).clone().drop_guard());
        let drain_deadline = settings.drain_deadline();
        Ok(Self { readiness, metrics, tasks, role, admin, drain_deadline, _stop_when_dropped: stop_when_dropped })
    }

    /// How long calls and streams may take to finish once serving tasks are told to stop. What is still open then is
    /// the serving task's to cut; the rest of the role gets a few seconds more.
    #[must_use]
    pub const fn drain_deadline(&self) -> Duration {
        self.drain_deadline
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
        let ended = self.tasks.run(shutdown, self.drain_deadline + LAST_WORK).await;
        tracing::info!(role = %self.role, "stopped");
        ended
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;
    use crate::admin::{CONNECTION_TIME, CONNECTIONS};

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        admin: AdminSettings,
    }

    async fn start() -> Service {
        let flags = Flags::parse_from(["role", "--admin-listen=127.0.0.1:0"]);
        Service::start(Role::Watch, &flags.admin).await.unwrap()
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn says_what_it_waits_for_and_then_that_it_is_ready() {
        let service = start().await;
        let (broker, topology) = (service.readiness.latch("broker"), service.readiness.latch("topology"));
        broker.release();
        let answer = get(service.admin(), "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.ends_with(r#"{"ready":false,"waiting_for":["topology"]}"#), "{answer}");
        topology.release();
        let answer = get(service.admin(), "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.ends_with(r#"{"ready":true,"waiting_for":[]}"#), "{answer}");
    }

    #[tokio::test]
    async fn is_alive_before_it_is_ready() {
        let service = start().await;
        let _latch = service.readiness.latch("broker");
        assert!(get(service.admin(), "/livez").await.starts_with("HTTP/1.1 200"));
    }

    #[tokio::test]
    async fn shows_what_was_registered() {
        let service = start().await;
        let counter = prometheus_client::metrics::counter::Counter::<u64>::default();
        service.metrics.register(|registry| registry.register("calls", "Calls", counter.clone()));
        counter.inc();
        let answer = get(service.admin(), "/metrics").await;
        assert!(answer.contains(r#"roadstead_calls_total{role="watch"} 1"#), "{answer}");
        assert!(answer.contains("roadstead_build_info"), "{answer}");
        assert!(answer.contains(r#"roadstead_tasks{role="watch"} "#), "{answer}");
    }

    #[tokio::test]
    async fn a_silent_connection_does_not_hold_up_the_end() {
        let service = start().await;
        let address = service.admin();
        let _silent = TcpStream::connect(address).await.unwrap();
        let shutdown = Shutdown::new();
        shutdown.request();
        assert_eq!(service.run(&shutdown).await, Ok(()));
        assert!(TcpStream::connect(address).await.is_err());
    }

    #[tokio::test]
    async fn connections_that_ask_nothing_hold_up_nobody_and_are_let_go() {
        let service = start().await;
        let mut silent = Vec::new();
        for begin in ["", "GET /livez HTTP/1.1\r\nX-Slow: "].iter().cycle().take(2 * CONNECTIONS) {
            let mut stream = TcpStream::connect(service.admin()).await.unwrap();
            stream.write_all(begin.as_bytes()).await.unwrap();
            silent.push(stream);
        }
        let answered = tokio::time::timeout(CONNECTION_TIME / 2, get(service.admin(), "/livez")).await;
        assert!(answered.unwrap().starts_with("HTTP/1.1 200"));
        for mut stream in silent {
            let mut heard = Vec::new();
            let _reset = tokio::time::timeout(CONNECTION_TIME * 2, stream.read_to_end(&mut heard)).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_request_without_end_is_refused() {
        let service = start().await;
        let mut stream = TcpStream::connect(service.admin()).await.unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nX-Long: ").await.unwrap();
        let mut sent = 0;
        while stream.write_all(&[b'x'; 1024]).await.is_ok() {
            sent += 1024;
            assert!(sent < 16 * 1024 * 1024, "it listens without end");
        }
    }

    #[tokio::test]
    async fn dropped_early_it_tells_its_tasks_to_stop() {
        let service = start().await;
        let stop = service.tasks.stop_token(Phase::Serving).clone();
        drop(service);
        assert!(stop.is_cancelled());
    }

    #[tokio::test]
    async fn a_taken_port_is_named() {
        let service = start().await;
        let taken = format!("--admin-listen={}", service.admin());
        let error = Service::start(Role::Edge, &Flags::parse_from(["role", &taken]).admin).await.unwrap_err();
        assert!(error.to_string().contains(&service.admin().to_string()), "{error}");
    }
}
