//! The processes behind the doors, and the memory that they take.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::stage::Stage;
use crate::all::run_file::RunFile;

const POLL: Duration = Duration::from_millis(20);

/// The process that listens at that URL.
pub(crate) fn behind(stage: &Stage, door: &str) -> anyhow::Result<u32> {
    let replicas = RunFile::load(stage.target.folder())?.replicas;
    let replica = replicas.iter().find(|replica| replica.listen.is_some_and(|at| format!("http://{at}") == door));
    replica.and_then(|replica| replica.pid).context("the door is no process")
}

/// Waits until another process than `former` listens there.
pub(crate) async fn successor(stage: &Stage, door: &str, former: u32, within: Duration) -> anyhow::Result<u32> {
    let began = Instant::now();
    loop {
        // While it is being started again there is none, and the file may be half written.
        if let Ok(process) = behind(stage, door)
            && process != former
        {
            return Ok(process);
        }
        ensure!(began.elapsed() < within, "a process that died was not started again in time");
        tokio::time::sleep(POLL).await;
    }
}

/// Resident memory.
pub(crate) fn resident_kib(process: u32) -> anyhow::Result<f64> {
    memory_kib(process, "VmRSS:")
}

/// The most memory that was resident at any time of its life.
pub(crate) fn peak_kib(process: u32) -> anyhow::Result<f64> {
    memory_kib(process, "VmHWM:")
}

fn memory_kib(process: u32, kind: &str) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).context("memory is told by Linux only")?;
    let memory = status.lines().find_map(|line| line.strip_prefix(kind)).context("no memory is told")?;
    Ok(memory.trim().trim_end_matches(" kB").parse()?)
}
