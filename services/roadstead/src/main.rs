//! The program `roadstead`: every role, and the commands for those who run and use them.

mod all;
mod cli;
mod client;
mod demo;
mod operate;
mod role;

use std::process::ExitCode;

use clap::Parser as _;
use cli::{Cli, Command};
use roadstead_service_kit::shutdown::Shutdown;

#[tokio::main]
async fn main() -> ExitCode {
    match run(Cli::parse().command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => client::output::failure(&error),
    }
}

async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Role(role) => role.run(Shutdown::on_signals()?).await,
        Command::All(all) => all.run(Shutdown::on_signals()?).await,
        Command::Supervisor(supervisor) => supervisor.run(Shutdown::on_signals()?).await,
        Command::Workspace(command) => command.run().await,
        Command::Sandbox(command) => command.run().await,
        Command::Provider(command) => command.run().await,
        Command::Policy(command) => command.run().await,
        Command::Watch(command) => command.run().await,
        Command::Health(command) => command.run().await,
        Command::Migrate(command) => command.run().await,
        Command::Keys(command) => command.run(),
        Command::Demo(demo) => demo.run().await,
    }
}
