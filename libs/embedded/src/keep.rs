//! Keeps a server running: starts it again when it dies, as often as a policy allows.

use std::{fmt, future::Future, io, time::Duration};

use tokio::{
    sync::{oneshot, watch},
    task::{JoinError, JoinHandle},
    time::{Instant, sleep},
};

use crate::{Error, Process};

/// Something that can be started, again and again, at the same address.
pub trait Server: Send + Sync + 'static {
    /// The name it goes by in logs and errors.
    fn name(&self) -> &'static str;

    /// Starts it and returns when it answers.
    fn start(&self) -> impl Future<Output = Result<Process, Error>> + Send;
}

/// One unwanted end of a server.
#[derive(Debug, Clone)]
pub struct Death {
    /// Which death in a row this is, from 1; a life of [`LONG_LIFE`] starts the count anew.
    pub in_a_row: u32,
    /// How it ended or why it did not start, for people.
    pub how: String,
}

/// A server that lived this long had not failed at its start.
pub const LONG_LIFE: Duration = Duration::from_secs(30);

/// Decides after each death: start again after so long, or (`None`) give up.
pub struct RestartPolicy(Box<Decide>);

type Decide = dyn FnMut(&Death) -> Option<Duration> + Send;

impl RestartPolicy {
    /// A policy of one's own.
    pub fn new(decide: impl FnMut(&Death) -> Option<Duration> + Send + 'static) -> Self {
        Self(Box::new(decide))
    }

    /// Never starts it again.
    #[must_use]
    pub fn never() -> Self {
        Self::new(|_| None)
    }
}

impl Default for RestartPolicy {
    /// Starts it again after 100 ms, doubling to 6.4 s, and gives up at the eighth death in a row.
    fn default() -> Self {
        Self::new(|death| (death.in_a_row < 8).then(|| Duration::from_millis(50) * (1 << death.in_a_row)))
    }
}

impl fmt::Debug for RestartPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RestartPolicy")
    }
}

/// A server that is kept running. Dropped, it is ended at once.
#[derive(Debug)]
pub struct Kept {
    name: &'static str,
    pid: watch::Receiver<Option<u32>>,
    stop: oneshot::Sender<Duration>,
    task: JoinHandle<io::Result<()>>,
}

impl Kept {
    /// Starts `server` and keeps it running.
    ///
    /// # Errors
    /// The first start fails; the policy is asked only after that.
    pub async fn start(server: impl Server, policy: RestartPolicy) -> Result<Self, Error> {
        let name = server.name();
        let process = server.start().await?;
        let (pid_sender, pid) = watch::channel(Some(process.pid()));
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(keep(server, process, policy, pid_sender, stopped));
        Ok(Self { name, pid, stop, task })
    }

    /// Its name in logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The process id now; `None` while it is down.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        *self.pid.borrow()
    }

    /// The process id as it changes: none while the server is down, closed when it was given up.
    #[must_use]
    pub fn pids(&self) -> watch::Receiver<Option<u32>> {
        self.pid.clone()
    }

    /// Waits until the policy has given it up. Cancelling the wait changes nothing.
    pub async fn given_up(&mut self) {
        // An error means that the keeping task has ended, which it does only then (or when told to stop).
        while self.pid.changed().await.is_ok() {}
    }

    /// Stops it in order, killing after `deadline`.
    ///
    /// # Errors
    /// The system does not let it be stopped.
    pub async fn stop(self, deadline: Duration) -> io::Result<()> {
        if self.stop.send(deadline).is_err() {
            tracing::debug!(server = self.name, "had been given up before it was told to stop");
        }
        self.task.await.map_err(|error: JoinError| io::Error::other(error))?
    }
}

async fn keep(
    server: impl Server,
    first: Process,
    mut policy: RestartPolicy,
    pid: watch::Sender<Option<u32>>,
    mut stopped: oneshot::Receiver<Duration>,
) -> io::Result<()> {
    let mut running = Some(first);
    let mut in_a_row = 0;
    let mut since = Instant::now();
    loop {
        let how = match running.take() {
            Some(mut process) => {
                pid.send_replace(Some(process.pid()));
                let ended = tokio::select! {
                    ended = process.wait() => ended?,
                    deadline = &mut stopped => return end(process, deadline).await,
                };
                pid.send_replace(None);
                format!("{ended}; the last lines of its log: {}", process.log_tail())
            }
            None => tokio::select! {
                started = server.start() => match started {
                    Ok(process) => {
                        running = Some(process);
                        continue;
                    }
                    Err(error) => error.to_string(),
                },
                _ = &mut stopped => return Ok(()),
            },
        };
        in_a_row = if since.elapsed() >= LONG_LIFE { 1 } else { in_a_row + 1 };
        let death = Death { in_a_row, how };
        let Some(pause) = policy.0(&death) else {
            tracing::error!(server = server.name(), death.in_a_row, how = death.how, "died and is given up");
            return Ok(());
        };
        tracing::warn!(server = server.name(), death.in_a_row, how = death.how, ?pause, "died and is started again");
        tokio::select! {
            () = sleep(pause) => {}
            _ = &mut stopped => return Ok(()),
        }
        since = Instant::now();
    }
}

/// Told to stop: in order. The owner dropped: at once, by dropping the process.
async fn end(process: Process, deadline: Result<Duration, oneshot::error::RecvError>) -> io::Result<()> {
    match deadline {
        Ok(deadline) => process.stop(deadline).await.map(drop),
        Err(_) => Ok(()),
    }
}
