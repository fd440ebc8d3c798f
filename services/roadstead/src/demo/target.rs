//! What the demo runs against: a deployment of its own, or the compose file's.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use roadstead_embedded::Process;
use roadstead_embedded::process::Signals;
use roadstead_proto::role::Role;
use tokio::process::Command;

use crate::all::run_file::RunFile;
use crate::operate::keys::write_private;
use crate::operate::operator::Operator;

const READY_TIME: Duration = Duration::from_secs(90);
const STOP_TIME: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// Which deployment.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Starts one with two edges and two admissions, in a folder that is removed afterwards
    All,
    /// Uses the one that `docker compose up` runs in this folder
    Compose,
}

/// A deployment that runs.
#[derive(Debug)]
pub(crate) enum Target {
    All { process: Box<Process>, data: tempfile::TempDir },
    Compose { keys: tempfile::TempDir },
}

/// Where its doors are, as URLs.
#[derive(Clone, Debug)]
pub(crate) struct Doors {
    /// At least one; the second is another process if there is one.
    pub(crate) edges: Vec<String>,
    pub(crate) bridge: String,
}

impl Target {
    /// Starts or finds it.
    pub(crate) async fn of(kind: Kind) -> anyhow::Result<(Self, Doors)> {
        match kind {
            Kind::All => Self::start(tempfile::Builder::new().prefix("roadstead-demo-").tempdir()?, &[], &[]).await,
            Kind::Compose => Self::find_compose().await,
        }
    }

    /// Starts one with its data in that folder, with further `flags` and environment variables.
    pub(crate) async fn start(
        data: tempfile::TempDir,
        flags: &[String],
        settings: &[(&str, &str)],
    ) -> anyhow::Result<(Self, Doors)> {
        let folder = data.path().to_string_lossy().into_owned();
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["all", "--separate", "--replicas", "edge=2,admission=2", "--free-ports", "--data", &folder]);
        command.args(flags).envs(settings.iter().copied());
        let signals = Signals { stop: Signal::SIGTERM, abort: Signal::SIGKILL };
        let mut process = Process::spawn("all", command, signals, &data.path().join("all.log"))?;
        let run = tokio::time::timeout(READY_TIME, async {
            loop {
                if let Ok(run) = RunFile::load(data.path()) {
                    return Ok(run);
                }
                if let Some(status) = process.ended() {
                    bail!("it ended ({status}): {}", process.log_tail());
                }
                tokio::time::sleep(POLL).await;
            }
        })
        .await
        .context("it did not become ready in time")??;
        let listen = |role: Role| -> Vec<String> {
            let replicas = run.replicas.iter().filter(|replica| replica.role == role.name());
            replicas.filter_map(|replica| Some(format!("http://{}", replica.listen?))).collect()
        };
        let bridge = listen(Role::SupervisorBridge).pop().context("no bridge runs")?;
        let doors = Doors { edges: listen(Role::Edge), bridge };
        Ok((Self::All { process: Box::new(process), data }, doors))
    }

    async fn find_compose() -> anyhow::Result<(Self, Doors)> {
        let port = async |service: &str, port: &str| -> anyhow::Result<String> {
            let address = compose(&["port", service, port]).await?;
            Ok(format!("http://{}", address.trim()))
        };
        let doors =
            Doors { edges: vec![port("edge", "17670").await?], bridge: port("supervisor-bridge", "17671").await? };
        Ok((Self::Compose { keys: tempfile::tempdir()? }, doors))
    }

    /// Writes a token for the sandbox's supervisor to a private file.
    pub(crate) async fn token(&self, workspace: &str, sandbox: &str) -> anyhow::Result<PathBuf> {
        let (folder, token) = match self {
            Self::All { data, .. } => (data.path(), Operator::of(data.path())?.mint(workspace, sandbox).await?.token),
            Self::Compose { keys } => {
                let token =
                    compose(&["run", "--rm", "-T", "operator", "sandbox", "token", sandbox, "-w", workspace]).await?;
                (keys.path(), token.trim().to_owned())
            }
        };
        let file = folder.join(format!("{workspace}-{sandbox}.token"));
        write_private(&file, token.as_bytes())?;
        Ok(file)
    }

    /// Kills one admission without warning; which, for people.
    pub(crate) async fn kill_an_admission(&self) -> anyhow::Result<String> {
        let pid = match self {
            Self::All { data, .. } => {
                let run = RunFile::load(data.path())?;
                let mut admissions = run.replicas.iter().filter(|replica| replica.role == Role::Admission.name());
                admissions.find_map(|replica| replica.pid).context("no admission runs")?
            }
            Self::Compose { .. } => {
                let containers = compose(&["ps", "-q", "admission"]).await?;
                let container = containers.lines().next().context("no admission runs")?;
                // A container that docker itself kills is not started again; one whose process dies is.
                run("docker", &["inspect", "-f", "{{.State.Pid}}", container]).await?.trim().parse()?
            }
        };
        kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGKILL)?;
        Ok(format!("process {pid}"))
    }

    /// Names of the sandboxes that Postgres holds in a workspace, asked of Postgres itself.
    pub(crate) async fn sandboxes_in_postgres(&self, workspace: &str) -> anyhow::Result<Vec<String>> {
        let query = format!(
            "SELECT s.name FROM roadstead.sandbox s JOIN roadstead.workspace w ON w.id = s.workspace_id \
             WHERE w.name = '{workspace}' ORDER BY s.name"
        );
        let rows = match self {
            Self::All { data, .. } => super::postgres::ask(data.path(), &query).await?,
            Self::Compose { .. } => {
                compose(&["exec", "-T", "postgres", "psql", "-U", "roadstead", "-d", "roadstead", "-tAc", &query])
                    .await?
            }
        };
        Ok(rows.lines().map(str::to_owned).collect())
    }

    /// Folder for the supervisor's files.
    pub(crate) fn folder(&self) -> &Path {
        match self {
            Self::All { data, .. } => data.path(),
            Self::Compose { keys } => keys.path(),
        }
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        if let Self::All { process, .. } = self {
            process.stop(STOP_TIME).await?;
        }
        Ok(())
    }
}

async fn compose(arguments: &[&str]) -> anyhow::Result<String> {
    run("docker", &[&["compose"], arguments].concat()).await
}

/// What a program prints, if it succeeds.
pub(crate) async fn run(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .output()
        .await
        .with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{program} failed ({}): {}", output.status, errors.lines().last().unwrap_or_default());
    }
    Ok(String::from_utf8(output.stdout)?)
}
