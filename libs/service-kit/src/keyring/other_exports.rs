//! What those get who set up the broker and the database.

use std::collections::BTreeMap;
use std::path::Path;

use roadstead_proto::role::Role;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::key_file::{self, KeyFileError};
use crate::role_keys::secret_text;
use crate::whole_file::Existing;

/// Each role's public keys at the broker; nothing here is secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BrokerKeys {
    users: BTreeMap<String, Vec<String>>,
}

impl BrokerKeys {
    pub(super) fn add(&mut self, role: Role, public_key: String) {
        self.users.entry(role.name().to_owned()).or_default().push(public_key);
    }

    /// Each role with its public nkeys, the one in use first.
    pub fn users(&self) -> impl Iterator<Item = (Role, &[String])> {
        self.users.iter().filter_map(|(role, keys)| Some((Role::from_name(role)?, keys.as_slice())))
    }

    /// The public nkeys of one role, the one in use first.
    #[must_use]
    pub fn of(&self, role: Role) -> &[String] {
        self.users.get(role.name()).map_or(&[], Vec::as_slice)
    }
}

/// The passwords that whoever sets up Postgres sets.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnerKeys {
    #[serde(with = "secret_text")]
    owner_password: SecretString,
    #[serde(with = "secret_text::by_name")]
    role_passwords: BTreeMap<String, SecretString>,
}

impl OwnerKeys {
    /// The roles that have a user in Postgres.
    pub const ROLES: [Role; 3] = [Role::Admission, Role::ConfigSnapshot, Role::Watch];
    /// The usual name of the file.
    pub const FILE_NAME: &str = "owner.keys.json";

    pub(super) const fn new(owner_password: SecretString) -> Self {
        Self { owner_password, role_passwords: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, role: Role, password: SecretString) {
        self.role_passwords.insert(role.name().to_owned(), password);
    }

    /// Password of the user that owns the schema.
    #[must_use]
    pub const fn owner_password(&self) -> &SecretString {
        &self.owner_password
    }

    /// Password of a role's user, of those in [`Self::ROLES`].
    #[must_use]
    pub fn role_password(&self, role: Role) -> Option<&SecretString> {
        self.role_passwords.get(role.name())
    }

    /// Reads the file.
    ///
    /// # Errors
    /// Also if others than its owner may read it.
    pub fn load(path: &Path) -> Result<Self, KeyFileError> {
        let keys: Self = key_file::read(path)?;
        match Self::ROLES.into_iter().find(|role| keys.role_password(*role).is_none()) {
            None => Ok(keys),
            Some(role) => {
                let reason = format!("it has no password for role {role}");
                Err(KeyFileError::Invalid { path: path.to_owned(), reason })
            }
        }
    }

    /// Writes the file, mode 0600, over an older one.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn save(&self, path: &Path) -> Result<(), KeyFileError> {
        key_file::write(path, self, Existing::Replace)
    }
}
