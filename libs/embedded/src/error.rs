//! What can go wrong with an embedded server.

use std::{io, path::PathBuf, process::ExitStatus, time::Duration};

/// Why an embedded server could not be prepared, started or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program is not on this machine.
    #[error("{program} was not found ({looked}); {advice}")]
    NotFound {
        /// The program looked for.
        program: &'static str,
        /// Where it was looked for.
        looked: String,
        /// How to get it.
        advice: &'static str,
    },
    /// The program is there, but too old or not what its name says.
    #[error("{} is not usable: {program} {needed} or newer is needed, it says {said:?}", path.display())]
    WrongVersion {
        /// The program looked for.
        program: &'static str,
        /// The file found.
        path: PathBuf,
        /// The oldest version that serves.
        needed: &'static str,
        /// What the program printed as its version.
        said: String,
    },
    /// Postgres refuses to run as root, and no other user that could run it exists.
    #[error("Postgres cannot run as root and neither the user `postgres` nor `nobody` exists")]
    NoUser,
    /// A file or folder could not be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The data folder is in use by another live process.
    #[error("{} is in use by another process", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// A program could not be run at all.
    #[error("could not run {program}: {source}")]
    Spawn {
        /// The program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// A one-time step (such as initdb) failed.
    #[error("{step} failed: {output}")]
    Step {
        /// The step.
        step: &'static str,
        /// The last lines of its output.
        output: String,
    },
    /// The server ended before it was ready.
    #[error("{name} ended before it was ready ({status}); the last lines of its log: {log}")]
    Ended {
        /// The server.
        name: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// The last lines of its log.
        log: String,
    },
    /// The server did not answer in time.
    #[error("{name} was not ready after {waited:?}; the last lines of its log: {log}")]
    NotReady {
        /// The server.
        name: &'static str,
        /// How long it was waited for.
        waited: Duration,
        /// The last lines of its log.
        log: String,
    },
    /// No free port was found.
    #[error("no free loopback port was found")]
    NoPort,
}

impl Error {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
