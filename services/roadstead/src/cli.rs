//! The command line.

use std::ffi::OsString;

use clap::{Parser, Subcommand};
use roadstead_service_kit::settings::LogSettings;

use crate::{all, bench, client, demo, operate, role};

/// The control plane for agent sandboxes.
///
/// `roadstead all` runs everything on this machine. The commands `workspace`, `sandbox`, `provider`, `policy` and
/// `config` then talk to it, and `roadstead watch NAME` shows a sandbox change. The five roles are for deployments that run them apart.
/// `roadstead admission list`, `show` and `settle` are for commands whose outcome is not known.
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
    Config(client::config::Command),
    Supervisor(operate::supervisor::Command),
    Health(operate::health::Command),
    Migrate(operate::migrate::Command),
    Recover(operate::recover::Command),
    /// What `roadstead admission list`, `show` and `settle` stand for
    #[command(hide = true)]
    Ledger(operate::ledger::Command),
    Bridge(operate::bridge::Command),
    Keys(operate::keys::Command),
    Demo(demo::Command),
    Bench(bench::Command),
}

/// Two roles are also what people look at. `watch` followed by a name is short for `sandbox watch`; `admission` followed
/// by a command is about its ledger.
pub(crate) fn expand(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let named = arguments.get(2).is_some_and(|next| !next.as_encoded_bytes().starts_with(b"-"));
    match arguments.get(1).and_then(|command| command.to_str()) {
        Some("watch") if named => arguments.insert(1, "sandbox".into()),
        Some("admission") if named => arguments[1] = "ledger".into(),
        _ => {}
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
    fn admission_with_a_command_is_about_the_ledger_and_without_it_is_the_role() {
        let parse = |line: &str| Cli::try_parse_from(expand(line.split(' ').map(OsString::from).collect()));
        let settle = "roadstead admission settle 7 --as failed --reason looked --operator ann --keys x";
        for line in ["roadstead admission list --keys x", "roadstead admission show 7 --keys x -o json", settle] {
            assert!(matches!(parse(line).unwrap().command, Command::Ledger(_)), "{line}");
        }
        let role = parse("roadstead admission --keys x").unwrap().command;
        assert!(matches!(role, Command::Role(role::Command::Admission(_))));
        assert!(parse("roadstead admission settle 7 --as failed --operator ann --keys x").is_err(), "no reason");
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
        Role::command().debug_assert();
    }
}
