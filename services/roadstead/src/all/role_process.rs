//! A role in a process of its own.

use std::path::PathBuf;

use nix::sys::signal::Signal;
use roadstead_embedded::keep::Server;
use roadstead_embedded::process::Signals;
use roadstead_embedded::{Error, Process};
use tokio::process::Command;

use super::layout::Replica;
use crate::operate::health;

/// One replica, to be started any number of times at the same addresses.
#[derive(Debug)]
pub(crate) struct RoleProcess {
    pub(crate) replica: Replica,
    /// What follows the program's name.
    pub(crate) arguments: Vec<String>,
    pub(crate) log: PathBuf,
}

impl Server for RoleProcess {
    fn name(&self) -> &'static str {
        self.replica.role.name()
    }

    /// Returns when the role is ready.
    async fn start(&self) -> Result<Process, Error> {
        let program = std::env::current_exe().map_err(|source| Error::Spawn { program: "roadstead".into(), source })?;
        let mut command = Command::new(program);
        command.args(&self.arguments);
        let signals = Signals { stop: Signal::SIGTERM, abort: Signal::SIGKILL };
        let mut process = Process::spawn(self.name(), command, signals, &self.log)?;
        tokio::select! {
            () = health::wait(self.replica.admin) => Ok(process),
            status = process.wait() => match status {
                Ok(status) => Err(Error::Ended { name: self.name(), status, log: process.log_tail() }),
                Err(source) => Err(Error::Spawn { program: self.name().into(), source }),
            },
        }
    }
}
