//! The program `roadstead`: every role, and the commands for those who run and use them.

mod all;
mod bench;
mod cli;
mod client;
mod demo;
mod operate;
mod role;

use std::process::ExitCode;

use clap::Parser as _;
use cli::{Cli, Command};
use roadstead_service_kit::settings::LogSettings;
use roadstead_service_kit::shutdown::Shutdown;
use roadstead_service_kit::telemetry::Telemetry;

#[tokio::main]
async fn main() -> ExitCode {
    let Cli { log, command } = Cli::parse_from(cli::expand(std::env::args_os().collect()));
    let result = match Telemetry::start(&log, command.service()) {
        Ok(telemetry) => {
            let result = run(command, &log).await;
            telemetry.flush().await;
            result
        }
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => client::output::failure(&error),
    }
}

async fn run(command: Command, log: &LogSettings) -> anyhow::Result<()> {
    match command {
        Command::Role(role) => role.run(Shutdown::on_signals()?).await,
        Command::All(all) => all.run(log, Shutdown::on_signals()?).await,
        Command::Supervisor(supervisor) => supervisor.run(Shutdown::on_signals()?).await,
        Command::Workspace(command) => command.run().await,
        Command::Sandbox(command) => command.run().await,
        Command::Provider(command) => command.run().await,
        Command::Policy(command) => command.run().await,
        Command::Config(command) => command.run().await,
        Command::Health(command) => command.run().await,
        Command::Migrate(command) => command.run().await,
        Command::Recover(command) => command.run().await,
        Command::Ledger(command) => command.run().await,
        Command::Bridge(command) => command.run().await,
        Command::Keys(command) => command.run(),
        Command::Demo(demo) => demo.run().await,
        Command::Bench(bench) => bench.run().await,
    }
}
