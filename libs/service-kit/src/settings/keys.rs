//! The role's key file.

use std::path::PathBuf;

use clap::Args;
use roadstead_proto::role::Role;

use crate::key_file::KeyFileError;
use crate::role_keys::RoleKeys;

/// Where the role's keys are.
#[derive(Args, Clone, Debug)]
pub struct KeysSettings {
    /// This role's key file, which `roadstead keys init` writes and only its owner may read (mode 0600). It holds what
    /// this role needs of the deployment's secrets, passwords included, and nothing else
    #[arg(long, env = "ROADSTEAD_KEYS", value_name = "FILE")]
    keys: PathBuf,
}

impl KeysSettings {
    /// Reads the keys of that role.
    ///
    /// # Errors
    /// If the file is not there, not private or another role's.
    pub fn load(&self, role: Role) -> Result<RoleKeys, KeyFileError> {
        RoleKeys::load(&self.keys, role)
    }
}
