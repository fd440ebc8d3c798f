//! `roadstead supervisor`: a small supervisor of one sandbox.

use std::path::PathBuf;

use clap::Args;
use roadstead_service_kit::shutdown::Shutdown;
use roadstead_supervisor::{Settings, Supervisor, TokenSource};

/// Stand in for a sandbox's supervisor: connect, apply what is pushed to a folder, answer, stay connected
#[derive(Args, Debug)]
pub(crate) struct Command {
    /// Name of the sandbox
    #[arg(long)]
    sandbox: String,
    /// Workspace of the sandbox
    #[arg(short, long, env = "ROADSTEAD_WORKSPACE", default_value = "default")]
    workspace: String,
    /// Address of a bridge; may be repeated
    #[arg(long = "bridge", env = "ROADSTEAD_BRIDGE", value_name = "URL", default_value = "http://127.0.0.1:17671")]
    bridges: Vec<String>,
    /// File with the sandbox's token, as `roadstead sandbox token NAME --to FILE` writes it; refreshed tokens go there
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// Folder for the configuration and the environment that are in effect; secrets are readable by you alone
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Certificate authority of the bridges (PEM), for https
    #[arg(long, env = "ROADSTEAD_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl Command {
    pub(crate) async fn run(self, shutdown: Shutdown) -> anyhow::Result<()> {
        let Self { sandbox, workspace, bridges, token_file, dir, ca } = self;
        let settings = Settings {
            bridges,
            ca,
            folder: Some(dir),
            ..Settings::new("", workspace, sandbox, TokenSource::File(token_file))
        };
        let supervisor = Supervisor::start(settings)?;
        shutdown.requested().await;
        supervisor.stop().await;
        Ok(())
    }
}
