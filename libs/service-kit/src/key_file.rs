//! Files that hold secrets: read only if nobody else can read them, written whole and private.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use crate::whole_file::{self, Existing};

/// Longest file that is read, in bytes. Every export is far below.
const MAX_BYTES: u64 = 256 * 1024;
/// Permission bits of group and others.
const NOT_OWNER: u32 = 0o077;

/// Why a key file was not read or not written. Never shows what is in it.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file system refused to read it.
    #[error("cannot read the key file {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// Others than its owner may open it.
    #[error(
        "the key file {} has mode {mode:04o}, so others than its owner could use it; run: chmod 600 {}",
        path.display(), path.display()
    )]
    NotPrivate { path: PathBuf, mode: u32 },
    /// A directory, a pipe or the like.
    #[error("{} is not a regular file, so it is not taken for a key file", path.display())]
    NotAFile { path: PathBuf },
    /// Longer than any key file.
    #[error("{} has more than {MAX_BYTES} bytes, so it is not taken for a key file", path.display())]
    TooLong { path: PathBuf },
    /// Not what the file should hold.
    #[error("the key file {} is not valid: {reason}", path.display())]
    Invalid { path: PathBuf, reason: String },
    /// It exists and may not be overwritten.
    #[error("the key file {} exists already and is left as it is", path.display())]
    Exists { path: PathBuf },
    /// The file system refused to write it.
    #[error("cannot write the key file {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Reads a private file's JSON.
///
/// # Errors
/// Also if group or others have any right on the file.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, KeyFileError> {
    let failed = |source| KeyFileError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    // Asked of the open file, so that what is checked is what is read.
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(KeyFileError::NotAFile { path: path.to_owned() });
    }
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & NOT_OWNER != 0 {
        return Err(KeyFileError::NotPrivate { path: path.to_owned(), mode });
    }
    if metadata.len() > MAX_BYTES {
        return Err(KeyFileError::TooLong { path: path.to_owned() });
    }
    // Room for all of it at once: a growing buffer would leave copies behind.
    let capacity = usize::try_from(metadata.len()).unwrap_or_default();
    let mut text = Zeroizing::new(Vec::with_capacity(capacity));
    file.take(MAX_BYTES).read_to_end(&mut text).map_err(failed)?;
    serde_json::from_slice(&text).map_err(|error| KeyFileError::Invalid {
        path: path.to_owned(),
        // Only where: the parser's own words quote the text.
        reason: format!("line {}, column {} is not as expected", error.line(), error.column()),
    })
}

/// Writes a value as JSON, mode 0600: either all of it is there afterwards or none of it.
pub(crate) fn write<T: Serialize>(path: &Path, value: &T, existing: Existing) -> Result<(), KeyFileError> {
    let failed = |source| KeyFileError::Write { path: path.to_owned(), source };
    let mut text = Zeroizing::new(serde_json::to_vec_pretty(value).map_err(|error| failed(error.into()))?);
    text.push(b'\n');
    whole_file::write(path, &text, 0o600, existing).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => KeyFileError::Exists { path: path.to_owned() },
        _ => failed(error),
    })
}
