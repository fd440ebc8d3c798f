//! Ends a child process when its parent is gone.

use std::process::Stdio;

use nix::{sys::signal::Signal, unistd::Pid};
use tokio::process::{Child, Command};

use crate::Error;

/// Waits for the end of its standard input, which the system closes when the parent ends in whatever way, then
/// signals. (The kernel's parent-death signal serves less well: it is bound to the parent's *thread* and is cleared
/// by the change of user that Postgres needs.)
const SCRIPT: &str = r#"read -r _; kill -s "$1" "$2""#;

/// A small process that outlives this one just long enough to send one signal.
#[derive(Debug)]
pub(crate) struct Leash(Child);

impl Leash {
    pub(crate) fn tie(pid: Pid, signal: Signal) -> Result<Self, Error> {
        let name = signal.as_str().trim_start_matches("SIG");
        Command::new("/bin/sh")
            .args(["-c", SCRIPT, "leash", name, &pid.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map(Self)
            .map_err(|source| Error::Spawn { program: "/bin/sh".to_owned(), source })
    }

    /// Takes the leash off, so that it signals nobody.
    pub(crate) async fn untie(mut self) {
        if let Err(error) = self.0.kill().await {
            tracing::debug!(%error, "the leash had ended already");
        }
    }
}
