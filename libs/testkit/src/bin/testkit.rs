//! `testkit COMMAND ARGUMENT…`: runs a command (a test runner) within a test run, so that all its processes share
//! one Postgres. Ends as the command ends.

use std::{env, process::ExitCode};

use roadstead_testkit::run::{Started, VARIABLE};
use tokio::{
    process::Command,
    signal::unix::{SignalKind, signal},
};

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        eprintln!("usage: testkit COMMAND [ARGUMENT…]");
        return ExitCode::from(2);
    };
    let run = Started::start().await;
    let mut command = Command::new(&program);
    command.args(arguments).env(VARIABLE, run.folder()).kill_on_drop(true);
    let code = match command.spawn() {
        Ok(mut child) => tokio::select! {
            status = child.wait() => status.ok().and_then(|status| status.code()).unwrap_or(1),
            () = told_to_stop() => 130,
        },
        Err(error) => {
            eprintln!("{}: {error}", program.to_string_lossy());
            127
        }
    };
    run.stop().await;
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// A terminal's interrupt reaches the command too, which ends by itself.
#[allow(clippy::expect_used, reason = "without its signals the program could not clean up")]
async fn told_to_stop() {
    let mut interrupt = signal(SignalKind::interrupt()).expect("signals can be caught");
    let mut terminate = signal(SignalKind::terminate()).expect("signals can be caught");
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
