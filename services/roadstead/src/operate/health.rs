//! `roadstead health`: whether the process at an admin address is ready. For container health checks.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const TIMEOUT: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(20);
const READY: &str = "HTTP/1.1 200";
/// An answer names a handful of latches; more is not ours.
const MAX_ANSWER: u64 = 64 * 1024;

/// Ask a role whether it is ready; exit status 0 if so.
#[derive(Args, Debug)]
pub(crate) struct Command {
    /// Admin address of the role
    #[arg(long, env = "ROADSTEAD_ADMIN_LISTEN", default_value = "127.0.0.1:17680")]
    admin: SocketAddr,
}

impl Command {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let answer = tokio::time::timeout(TIMEOUT, ask(self.admin)).await.context("no answer in time")??;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        if head.starts_with(READY) {
            return Ok(());
        }
        bail!("not ready: {body}")
    }
}

/// Waits until the role at `admin` is ready.
pub(crate) async fn wait(admin: SocketAddr) {
    loop {
        if let Ok(Ok(answer)) = tokio::time::timeout(TIMEOUT, ask(admin)).await
            && answer.starts_with(READY)
        {
            return;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// One request of the simplest kind: HTTP/1.1, closed after the answer.
async fn ask(admin: SocketAddr) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(admin).await.with_context(|| format!("nothing listens at {admin}"))?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
