//! One process of a role.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use nix::sys::signal::Signal;
use roadstead_embedded::{Process, process::Signals};

use super::{Role, program};
use crate::{Proxy, Victim, eventually, plain_http};

const READY_TIME: Duration = Duration::from_secs(30);
const STOP_TIME: Duration = Duration::from_secs(40);

/// A process of a role, with addresses it keeps over restarts.
#[derive(Debug)]
pub struct Node {
    role: Role,
    number: usize,
    admin: SocketAddr,
    listen: Option<SocketAddr>,
    arguments: Vec<String>,
    log: PathBuf,
    process: Option<Process>,
    /// Between it and the broker.
    pub nats: Proxy,
    /// Between it and Postgres, if it has to do with it.
    pub postgres: Option<Proxy>,
}

impl Node {
    #[allow(clippy::too_many_arguments, reason = "its parts, from the one place that makes them")]
    pub(crate) fn new(
        role: Role,
        number: usize,
        admin: SocketAddr,
        listen: Option<SocketAddr>,
        arguments: Vec<String>,
        log: PathBuf,
        nats: Proxy,
        postgres: Option<Proxy>,
    ) -> Self {
        Self { role, number, admin, listen, arguments, log, process: None, nats, postgres }
    }

    pub(crate) fn is(&self, role: Role, number: usize) -> bool {
        self.role == role && self.number == number
    }

    /// Its role.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Which of its role it is, from 1.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Where it tells how it is.
    #[must_use]
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Where a door serves.
    ///
    /// # Panics
    /// It is no door.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.listen.unwrap_or_else(|| panic!("{:?} is no door", self.role)))
    }

    /// Its process, to freeze and thaw.
    ///
    /// # Panics
    /// It is down.
    #[must_use]
    pub fn victim(&self) -> Victim {
        Victim::new(self.process.as_ref().unwrap_or_else(|| panic!("{:?} {} is down", self.role, self.number)).pid())
    }

    /// Starts it, if it is down; see [`Node::ready`].
    pub fn resume(&mut self) {
        if self.process.is_none() {
            let mut command = program(&[]);
            command.args(&self.arguments);
            let signals = Signals { stop: Signal::SIGTERM, abort: Signal::SIGKILL };
            let process = Process::spawn(self.role.name(), command, signals, &self.log);
            self.process = Some(process.unwrap_or_else(|error| panic!("{error}")));
        }
    }

    /// Waits until it says that it is ready.
    ///
    /// # Panics
    /// It ends before, or takes too long.
    pub async fn ready(&mut self) {
        let what = format!("{:?} {} is ready", self.role, self.number);
        let (admin, process) = (self.admin, std::cell::RefCell::new(&mut self.process));
        eventually(READY_TIME, &what, async || {
            let ended = process.borrow_mut().as_mut().and_then(Process::ended);
            assert!(ended.is_none(), "not so, it ended ({ended:?}): {what}");
            let (status, body) = plain_http::get(admin, "/readyz").await.map_err(|error| error.to_string())?;
            if status == 200 { Ok(()) } else { Err(format!("{status}: {body}")) }
        })
        .await;
    }

    /// Whether it says that it is ready.
    pub async fn is_ready(&self) -> bool {
        plain_http::get(self.admin, "/readyz").await.is_ok_and(|(status, _)| status == 200)
    }

    /// KILL, collected.
    pub async fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.signal(Signal::SIGKILL).unwrap();
            process.wait().await.unwrap();
        }
    }

    /// TERM, waited for: it drains.
    ///
    /// # Panics
    /// It does not end well.
    pub async fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            let status = process.stop(STOP_TIME).await.unwrap();
            assert!(status.success(), "{:?} {} ended with {status}", self.role, self.number);
        }
    }

    /// Waits for the end of a process that was asked to end ([`Victim::terminate`]).
    ///
    /// # Panics
    /// It does not end in time, or not well.
    pub async fn ended(&mut self, within: Duration) {
        if let Some(mut process) = self.process.take() {
            let (role, number) = (self.role, self.number);
            let ended = tokio::time::timeout(within, process.wait()).await;
            let status = ended.unwrap_or_else(|_| panic!("{role:?} {number} did not end within {within:?}")).unwrap();
            assert!(status.success(), "{role:?} {number} ended with {status}");
        }
    }

    /// KILL and start again; returns when it is ready.
    pub async fn crash(&mut self) {
        self.kill().await;
        self.resume();
        self.ready().await;
    }

    /// The text of its `/metrics`.
    pub async fn metrics(&self) -> String {
        plain_http::get(self.admin, "/metrics").await.unwrap().1
    }

    /// The value of a metric whose line starts with `series` (name, and labels if it has any); 0 if there is none.
    pub async fn metric(&self, series: &str) -> f64 {
        let text = self.metrics().await;
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.trim().parse().unwrap())
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        self.process.as_ref().map_or_else(|| "(down)".to_owned(), Process::log_tail)
    }

    pub(crate) fn state(&self) -> &'static str {
        if self.process.is_some() { "running" } else { "down" }
    }
}
