//! A child process that this process owns.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use tokio::process::{Child, Command};

use crate::{Error, leash::Leash};

/// A running child process. Its output goes to a log file. Dropped, it is ended at once; use [`Process::stop`] for
/// an orderly end.
#[derive(Debug)]
pub struct Process {
    name: &'static str,
    child: Child,
    pid: Pid,
    signals: Signals,
    log: PathBuf,
    leash: Option<Leash>,
}

/// How a program wants to be ended.
#[derive(Debug, Clone, Copy)]
pub struct Signals {
    /// Asks for an orderly end.
    pub stop: Signal,
    /// Ends it at once, leaving nothing behind.
    pub abort: Signal,
}

impl Process {
    /// Starts `command`, in a process group of its own so that a terminal's Ctrl-C reaches only the parent, which
    /// then stops its children in order.
    ///
    /// # Errors
    /// The log file cannot be written or the program cannot be run.
    pub fn spawn(name: &'static str, mut command: Command, signals: Signals, log: &Path) -> Result<Self, Error> {
        let output = open_log(log).map_err(Error::file(log))?;
        let errors = output.try_clone().map_err(Error::file(log))?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        let failed = |source| Error::Spawn { program: program.clone(), source };
        let child = command.spawn().map_err(failed)?;
        let pid = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .map(Pid::from_raw)
            .ok_or_else(|| failed(io::Error::other("it has no process id")))?;
        let mut process = Self { name, child, pid, signals, log: log.to_owned(), leash: None };
        process.leash = Some(Leash::tie(pid, signals.stop)?);
        Ok(process)
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.as_raw().unsigned_abs()
    }

    /// The name it goes by in logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its end. Cancelling the wait changes nothing.
    ///
    /// # Errors
    /// The system does not tell.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        if let Some(leash) = self.leash.take() {
            leash.untie().await;
        }
        Ok(status)
    }

    /// Sends a signal; to a process that has ended, none.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        // An id is reused only after the end was collected, and then `id` is `None`.
        match self.child.id() {
            Some(_) => signal::kill(self.pid, signal).map_err(io::Error::from),
            None => Ok(()),
        }
    }

    /// Asks for an orderly end, and after `deadline` kills.
    ///
    /// # Errors
    /// The system refuses a signal or does not tell how it ended.
    pub async fn stop(mut self, deadline: Duration) -> io::Result<ExitStatus> {
        self.signal(self.signals.stop)?;
        if let Ok(status) = tokio::time::timeout(deadline, self.wait()).await {
            return status;
        }
        tracing::warn!(process = self.name, ?deadline, "did not stop in time and is killed");
        self.signal(self.signals.abort)?;
        if let Ok(status) = tokio::time::timeout(ABORT_TIME, self.wait()).await {
            return status;
        }
        self.signal(Signal::SIGKILL)?;
        self.wait().await
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        log_tail(&self.log)
    }
}

/// How long an aborted program may take before it is killed outright.
const ABORT_TIME: Duration = Duration::from_secs(2);

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.signal(self.signals.abort) {
            tracing::warn!(process = self.name, %error, "could not be ended");
        }
    }
}

/// Opened anew at each start: the log of one run is what explains its failure.
fn open_log(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)
}

const TAIL_BYTES: i64 = 2_000;

pub(crate) fn log_tail(path: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(path)?;
        let length = i64::try_from(file.metadata()?.len()).unwrap_or(i64::MAX);
        file.seek(SeekFrom::End(-length.min(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_else(|error| format!("{} cannot be read: {error}", path.display()))
}
