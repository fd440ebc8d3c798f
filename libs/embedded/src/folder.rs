//! A server's folder: held by one owner at a time, and free of a former owner's server.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::Error;

const POLL: Duration = Duration::from_millis(10);
/// A former owner's server is told to stop when its owner ends; this is the longest it may take.
const REMAINS_TIME: Duration = Duration::from_secs(30);

/// Makes a folder, and those above it, with `mode` if it is not there.
pub(crate) fn make(path: &Path, mode: u32) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(mode).create(path).map_err(Error::file(path))
}

/// Takes the folder for this process until the returned file is dropped.
pub(crate) fn claim(folder: &Path) -> Result<File, Error> {
    let path = folder.join("lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(Error::file(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::InUse { path: folder.to_owned() }),
        Err(TryLockError::Error(source)) => Err(Error::File { path, source }),
    }
}

/// Waits until the process whose id is the first line of `pid_file`, if it is a live `program`, is gone.
pub(crate) async fn wait_for_remains(pid_file: &Path, program: &str) -> Result<(), Error> {
    let deadline = Instant::now() + REMAINS_TIME;
    while first_line(pid_file).is_some_and(|pid| runs(&pid, program)) {
        if Instant::now() > deadline {
            return Err(Error::InUse { path: pid_file.to_owned() });
        }
        sleep(POLL).await;
    }
    Ok(())
}

fn first_line(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.lines().next()?.trim().to_owned())
}

/// Whether `pid` is a live process of `program`; a zombie is not.
fn runs(pid: &str, program: &str) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // `pid (name) state …`; the name may hold anything, so it ends at the last parenthesis.
    let Some((head, tail)) = stat.rsplit_once(") ") else { return false };
    head.ends_with(&format!("({program}")) && !tail.starts_with('Z')
}

/// Writes a file whole, readable by its owner alone.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)?;
        io::Write::write_all(&mut file, text.as_bytes())
    };
    write().map_err(Error::file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_owner_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let held = claim(folder.path()).unwrap();
        assert!(matches!(claim(folder.path()), Err(Error::InUse { .. })));
        drop(held);
        claim(folder.path()).unwrap();
    }

    #[test]
    fn a_live_process_is_told_from_an_ended_one_and_from_another_program() {
        let me = std::process::id().to_string();
        let name = fs::read_to_string("/proc/self/comm").unwrap();
        assert!(runs(&me, name.trim()));
        assert!(!runs(&me, "postgres"));
        assert!(!runs("999999999", name.trim()));
    }
}
