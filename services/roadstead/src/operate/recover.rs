//! `roadstead recover`: tells the deployment that its database is of an earlier time.

use clap::Args;
use roadstead_store::migrate::raise_epoch;

use super::migrate::Owner;
use crate::client::output::line;

/// Raise the database's epoch, after it was restored or failed over
#[derive(Args, Debug)]
#[command(after_help = "Run it once, after Postgres was restored from a backup, rolled back, or failed over to a \
    standby that may have lacked commits, and as soon as it answers again; the roles may run meanwhile. Until then, \
    what the broker shows of newer states that the database has lost stays on show. After it, whatever was shown of \
    the former life counts as older than anything the database says, and everything is compared with the database at \
    full speed. A restart of Postgres with all its commits needs nothing. One time too many does no harm.")]
pub(crate) struct Command {
    #[command(flatten)]
    owner: Owner,
}

impl Command {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let url = self.owner.url(&self.owner.keys()?)?;
        let raised = raise_epoch(&url).await?;
        line(&format!("the epoch was {} and is {} now", raised.before, raised.now))
    }
}
