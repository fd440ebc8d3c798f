//! The user that Postgres runs as: it refuses root.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, chown},
    path::Path,
};

use nix::unistd::{Uid, User};
use tokio::process::Command;

use crate::Error;

/// Another user, to whom a process is handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    uid: u32,
    gid: u32,
}

impl Account {
    /// The user Postgres must run as if this process is root's, else `None`: the own one.
    ///
    /// # Errors
    /// [`Error::NoUser`] if this is root and the machine has no user that could run it. (A bare number does not serve:
    /// initdb wants a name for its user.)
    pub fn for_postgres() -> Result<Option<Self>, Error> {
        if !Uid::effective().is_root() {
            return Ok(None);
        }
        ["postgres", "nobody"]
            .into_iter()
            .find_map(|name| User::from_name(name).ok().flatten())
            .map(|user| Some(Self { uid: user.uid.as_raw(), gid: user.gid.as_raw() }))
            .ok_or(Error::NoUser)
    }

    /// Has `command` run as this user.
    pub fn hand_over(&self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid);
    }

    /// Gives a file or folder to this user.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn own(&self, path: &Path) -> io::Result<()> {
        chown(path, Some(self.uid), Some(self.gid))
    }

    /// Whether this user can enter `folder`, that is, may search it and every folder above it.
    ///
    /// # Errors
    /// The folder or one above it cannot be examined.
    pub fn can_enter(&self, folder: &Path) -> io::Result<bool> {
        for part in fs::canonicalize(folder)?.ancestors() {
            let meta = fs::metadata(part)?;
            let needed = match () {
                () if meta.uid() == self.uid => 0o100,
                () if meta.gid() == self.gid => 0o010,
                () => 0o001,
            };
            if meta.mode() & needed == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_below_a_closed_one_cannot_be_entered() {
        let top = tempfile::tempdir().unwrap();
        let inner = top.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let stranger = Account { uid: 65_532, gid: 65_532 };
        fs::set_permissions(&inner, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(top.path(), fs::Permissions::from_mode(0o711)).unwrap();
        assert!(stranger.can_enter(&inner).unwrap());
        fs::set_permissions(top.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(!stranger.can_enter(&inner).unwrap());
    }
}
