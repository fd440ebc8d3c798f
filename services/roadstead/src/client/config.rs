//! `roadstead config`

use std::time::Duration;

use clap::{Args, Subcommand};

use super::connect::Connection;
use super::output::line;
use super::wait::{Sandbox, Wanted, until};

/// The effective configuration of sandboxes.
#[derive(Args, Debug)]
pub(crate) struct Command {
    #[command(flatten)]
    connection: Connection,
    /// Workspace of the sandbox
    #[arg(short, long, env = "ROADSTEAD_WORKSPACE", default_value = "default", global = true)]
    workspace: String,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Wait until the supervisor has taken exactly this revision, without either option the one that is desired now.
    ///
    /// Exits with 0 once it is loaded, with 3 if the supervisor refuses it, with 4 if something newer takes its place
    /// before, and with 5 if neither happens within `--timeout`.
    Wait {
        sandbox: String,
        /// A revision of the whole configuration
        #[arg(long, value_name = "TOKEN", conflicts_with = "policy_version")]
        revision: Option<u64>,
        /// A revision of the sandbox's policy
        #[arg(long, value_name = "VERSION")]
        policy_version: Option<u32>,
    },
}

impl Command {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let Action::Wait { sandbox, revision, policy_version } = self.action;
        let client = self.connection.open_stream().await?;
        let wanted = revision.map(Wanted::Config).or(policy_version.map(Wanted::Policy));
        let sandbox = Sandbox { client, workspace: self.workspace, name: sandbox };
        line(&until(sandbox, wanted, Duration::from_secs(self.connection.timeout)).await?)
    }
}
