//! Files that are written whole: who reads one sees the old content or the new, never a part, also after a crash.

use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// What to do if the file is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Leave it, and fail with [`io::ErrorKind::AlreadyExists`].
    Keep,
    /// Put the new one in its place.
    Replace,
}

/// Writes `content` beside the target and then puts it in place, with the permission bits `mode` less the process's
/// mask. What was begun and not finished is removed.
///
/// # Errors
/// The file system refused, or the file is there and to be kept.
pub fn write(path: &Path, content: &[u8], mode: u32, existing: Existing) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut file = tempfile::Builder::new().permissions(Permissions::from_mode(mode)).tempfile_in(folder)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    match existing {
        Existing::Replace => file.persist(path)?,
        Existing::Keep => file.persist_noclobber(path)?,
    };
    // Makes the new name last over a power cut.
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_permissions_or_kept_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        fs::write(&path, "old and longer").unwrap();
        let kept = write(&path, b"new", 0o600, Existing::Keep).unwrap_err();
        assert_eq!(kept.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"old and longer");
        write(&path, b"new", 0o600, Existing::Replace).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!((fs::read(&path).unwrap().as_slice(), mode), (&b"new"[..], 0o600));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
