//! The supervisor: one session after another, until it is stopped.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use crate::applied::Applied;
use crate::apply::{Store, StoreError};
use crate::behaviour::Behaviour;
use crate::bridges::Bridges;
use crate::log::{self, Lines, Log};
use crate::observed::{ConfigSeen, EnvironmentSeen, Observation};
use crate::session::{self, End};
use crate::settings::Settings;
use crate::token::{Token, TokenError};

/// Why a supervisor could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address of a bridge cannot be used.
    #[error("the address {0:?} cannot be used")]
    Address(String),
    /// No bridge is named.
    #[error("no bridge is named")]
    NoBridge,
    /// The certificate authority cannot be read.
    #[error("the certificate authority cannot be read: {0}")]
    Authority(std::io::Error),
    /// The folder cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no usable token.
    #[error(transparent)]
    Token(#[from] TokenError),
}

/// How a supervisor stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// The session that is open now.
    pub connection: Option<Connection>,
    /// How many sessions were accepted so far.
    pub sessions: u64,
    /// The configuration in effect.
    pub config: Option<ConfigSeen>,
    /// The environment in effect.
    pub environment: Option<EnvironmentSeen>,
    /// Why the last session, or attempt to have one, ended.
    pub last_end: Option<String>,
}

/// An open session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    pub session_id: String,
    /// Whether the bridge sends configuration on it.
    pub pushes: bool,
}

/// A running supervisor. It stops when it is dropped.
#[derive(Debug)]
pub struct Supervisor {
    sandbox_id: Uuid,
    behaviour: watch::Sender<Behaviour>,
    exit: watch::Sender<Option<i32>>,
    status: watch::Receiver<Status>,
    log: Log,
    stop: CancellationToken,
    _stop_when_dropped: DropGuard,
    task: JoinHandle<()>,
}

/// What outlives the sessions.
pub(crate) struct Client {
    pub(crate) settings: Settings,
    pub(crate) token: Token,
    pub(crate) store: Option<Arc<Store>>,
    pub(crate) applied: Applied,
    /// Rises with every attempt to connect.
    pub(crate) connection_epoch: u64,
    pub(crate) behaviour: watch::Receiver<Behaviour>,
    /// How the main process ended, once it has.
    pub(crate) exit: watch::Receiver<Option<i32>>,
    pub(crate) status: watch::Sender<Status>,
    pub(crate) lines: Lines,
}

impl Supervisor {
    /// Starts a supervisor. It connects in the background and keeps on trying.
    ///
    /// # Errors
    ///
    /// If the settings cannot be used. A bridge that is away is no error.
    #[allow(clippy::disallowed_methods, reason = "the handle owns the task and stops it")]
    pub fn start(settings: Settings) -> Result<Self, StartError> {
        let bridges = Bridges::of(&settings)?;
        let token = settings.token.load()?;
        let store = settings.folder.clone().map(Store::open).transpose()?.map(Arc::new);
        let sandbox_id = token.sandbox_id();
        let (behaviour, behaviours) = watch::channel(settings.behaviour.clone());
        let (exit, exits) = watch::channel(None);
        let (statuses, status) = watch::channel(Status::default());
        let (log, lines) = log::queue();
        let client = Client {
            settings,
            token,
            store,
            applied: Applied::default(),
            connection_epoch: 0,
            behaviour: behaviours,
            exit: exits,
            status: statuses,
            lines,
        };
        let stop = CancellationToken::new();
        let task = tokio::spawn(client.run(bridges, stop.clone()));
        let _stop_when_dropped = stop.clone().drop_guard();
        Ok(Self { sandbox_id, behaviour, exit, status, log, _stop_when_dropped, stop, task })
    }

    /// The sandbox it is for.
    #[must_use]
    pub const fn sandbox_id(&self) -> Uuid {
        self.sandbox_id
    }

    /// Changes how updates are treated, from the next one on.
    pub fn behave(&self, behaviour: Behaviour) {
        self.behaviour.send_replace(behaviour);
    }

    /// How it stands, now and with every change.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Takes lines for the sandbox's log.
    #[must_use]
    pub const fn log(&self) -> &Log {
        &self.log
    }

    /// Ends the session in order and waits for that.
    pub async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the supervisor's task failed");
        }
    }

    /// Says that the main process has ended, with this code (128 and the signal's number if a signal ended it), and
    /// leaves once that is known. It keeps on trying until then: a supervisor without a main process has nothing else to
    /// do.
    pub async fn exit(self, code: i32) {
        self.exit.send_replace(Some(code));
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the supervisor's task failed");
        }
    }

    /// Dies: the connection breaks without a word, as it does when the process is killed.
    pub fn kill(self) {
        self.task.abort();
    }
}

impl Client {
    async fn run(mut self, bridges: Bridges, stop: CancellationToken) {
        let mut failures = 0;
        let mut own = bridges.known.iter().cycle();
        let mut peer = None;
        while let Some(endpoint) = peer.as_ref().or_else(|| own.next()) {
            let began = Instant::now();
            let end = session::run(&mut self, endpoint, peer.is_some(), &stop).await;
            let session = self.ended(&end);
            if stop.is_cancelled() || self.is_done(&end) {
                return;
            }
            if session && began.elapsed() >= self.settings.backoff.steady {
                failures = 0;
            }
            peer = match &end {
                End::Redirected(address) => bridges.peer(address),
                _ => None,
            };
            // Who is sent elsewhere goes at once, but is not chased round and round.
            let pause = if peer.is_some() && failures == 0 {
                Duration::ZERO
            } else {
                self.settings.backoff.pause(failures, rand::rng().random())
            };
            failures = failures.saturating_add(1);
            tracing::info!(reason = %end, ?pause, "not connected; trying again");
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Whether the end of the main process has been told. If it is known already, its instance cannot connect any more.
    fn is_done(&self, end: &End) -> bool {
        self.exit.borrow().is_some() && end.is_final()
    }

    /// Notes the end of a session or an attempt; whether it was a session.
    fn ended(&self, end: &End) -> bool {
        let connection = self.status.borrow().connection.clone();
        self.status.send_modify(|status| {
            status.connection = None;
            status.last_end = Some(end.to_string());
        });
        let session_id = connection.map(|connection| connection.session_id);
        let had_session = session_id.is_some();
        self.tell(Observation::Ended { session_id, reason: end.to_string(), at: std::time::Instant::now() });
        had_session
    }

    pub(crate) fn tell(&self, observation: Observation) {
        if let Some(observer) = &self.settings.observer {
            observer.tell(observation);
        }
    }
}
