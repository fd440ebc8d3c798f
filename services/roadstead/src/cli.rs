//! The command line.

use std::ffi::OsString;

use clap::{Parser, Subcommand};
use roadstead_service_kit::settings::LogSettings;

use crate::{all, bench, client, demo, operate, role};

/// The control plane for agent sandboxes.
///
/// `roadstead all` runs everything on this machine. The commands `workspace`, `sandbox`, `provider` and `policy` then
/// talk to it, and `roadstead watch NAME` shows a sandbox change. The five roles are for deployments that run them apart.
#[derive(Parser, Debug)]
#[command(version, propagate_version = true, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) log: LogSettings,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
#[allow(clippy::large_enum_variant, reason = "one value in the life of the process")]
pub(crate) enum Command {
    #[command(flatten)]
    Role(role::Command),
    All(all::Command),
    Workspace(client::workspace::Command),
    Sandbox(client::sandbox::Command),
    Provider(client::provider::Command),
    Policy(client::policy::Command),
    Supervisor(operate::supervisor::Command),
    Health(operate::health::Command),
    Migrate(operate::migrate::Command),
    Keys(operate::keys::Command),
    Demo(demo::Command),
    Bench(bench::Command),
}

/// `watch` is a role, and what people do with a sandbox: followed by a name it is short for `sandbox watch`.
pub(crate) fn expand(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let named = arguments.get(2).is_some_and(|next| !next.as_encoded_bytes().starts_with(b"-"));
    if named && arguments.get(1).is_some_and(|command| command == "watch") {
        arguments.insert(1, "sandbox".into());
    }
    arguments
}

impl Command {
    /// Name under which its traces go.
    pub(crate) const fn service(&self) -> &'static str {
        match self {
            Self::Role(role) => role.role().name(),
            _ => "roadstead",
        }
    }
}

/// The command line of a role alone: what `roadstead all` builds for each replica.
#[derive(Parser, Debug)]
pub(crate) struct Role {
    #[command(subcommand)]
    pub(crate) role: role::Command,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn watch_with_a_name_is_about_a_sandbox_and_without_it_is_the_role() {
        let parse = |line: &str| Cli::try_parse_from(expand(line.split(' ').map(OsString::from).collect()));
        assert!(matches!(parse("roadstead watch hello").unwrap().command, Command::Sandbox(_)));
        assert!(matches!(parse("roadstead watch --keys x").unwrap().command, Command::Role(role::Command::Watch(_))));
        assert!(matches!(parse("roadstead sandbox watch hello -w w").unwrap().command, Command::Sandbox(_)));
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
        Role::command().debug_assert();
    }
}
