//! The command line.

use clap::{Parser, Subcommand};

use crate::{all, client, demo, operate, role};

/// The control plane for agent sandboxes.
///
/// `roadstead all` runs everything on this machine. The commands `workspace`, `sandbox`, `provider`, `policy` and
/// `watch` then talk to it. The five roles are for deployments that run them apart.
#[derive(Parser, Debug)]
#[command(version, propagate_version = true, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
#[allow(clippy::large_enum_variant, reason = "one value in the life of the process")]
pub enum Command {
    #[command(flatten)]
    Role(role::Command),
    All(all::Command),
    Workspace(client::workspace::Command),
    Sandbox(client::sandbox::Command),
    Provider(client::provider::Command),
    Policy(client::policy::Command),
    Watch(client::watch::Command),
    Supervisor(operate::supervisor::Command),
    Health(operate::health::Command),
    Migrate(operate::migrate::Command),
    Keys(operate::keys::Command),
    Demo(demo::Command),
}

/// The command line of a role alone: what `roadstead all` builds for each replica.
#[derive(Parser, Debug)]
pub struct Role {
    #[command(subcommand)]
    pub role: role::Command,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
        Role::command().debug_assert();
    }
}
