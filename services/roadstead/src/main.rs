//! The program `roadstead`: every role, and the commands for those who run and use them.

mod all;
mod bench;
mod cli;
mod client;
mod demo;
mod operate;
mod role;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use cli::{Cli, Command};
use roadstead_service_kit::settings::LogSettings;
use roadstead_service_kit::shutdown::Shutdown;
use roadstead_service_kit::telemetry::Telemetry;
use tokio::runtime::Runtime;

/// How long tasks that were told to stop, and have not, may take to be cleared away before the process ends without that.
const CLEAR: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let cli = Cli::parse_from(cli::expand(std::env::args_os().collect()));
    match Runtime::new() {
        Ok(runtime) => {
            let code = runtime.block_on(start(cli));
            // Dropped, it would wait for as long as one of them does not give way.
            runtime.shutdown_timeout(CLEAR);
            code
        }
        Err(error) => client::output::failure(&error.into()),
    }
}

async fn start(Cli { log, command }: Cli) -> ExitCode {
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
