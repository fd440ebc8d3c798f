//! What one role may know of the deployment's secrets: the content of its key file.

pub(crate) mod key_set;
pub(crate) mod secret_text;

use std::path::Path;

use key_set::KeySet;
use roadstead_proto::page_token::PageTokens;
use roadstead_proto::role::Role;
use roadstead_proto::sealing::{AdmissionSeal, CipherKeys, DoorSeal};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::hmac_keys::HmacKeys;
use crate::key_file::{self, KeyFileError};
use crate::sandbox_token::{TokenSigner, TokenVerifier};
use crate::whole_file::Existing;

/// The only layout of the file that is known.
pub(crate) const FORMAT: u32 = 1;

/// The keys of one role. Made by [`crate::keyring::Keyring::export`]; holds nothing the role does not need, so asking
/// it for another role's key is an error.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleKeys {
    pub(crate) format: u32,
    #[serde(with = "role_name")]
    pub(crate) role: Role,
    pub(crate) deployment: Uuid,
    #[serde(with = "secret_text")]
    pub(crate) broker_seed: SecretString,
    #[serde(default, with = "secret_text::optional", skip_serializing_if = "Option::is_none")]
    pub(crate) postgres_password: Option<SecretString>,
    /// Admission's public keys; commands are sealed to the active one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) admission_public: Option<KeySet>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token_public: Option<KeySet>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token_signing: Option<KeySet>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seal: Option<KeySet>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fingerprint: Option<KeySet>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) credential: Option<KeySet>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) snapshot: Option<KeySet>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) environment_digest: Option<KeySet>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) page_token: Option<KeySet>,
}

/// A key that was asked for is not there or not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The role has no such key, or its file is from before the key was introduced.
    #[error("the key file of role {role} has no {what}; write it again with `roadstead keys export`")]
    Missing { role: Role, what: &'static str },
    /// It cannot be used as what it stands for.
    #[error("the {what} in the key file of role {role} cannot be used as such")]
    Unusable { role: Role, what: &'static str },
}

impl RoleKeys {
    /// Reads a role's key file and checks that it is this role's.
    ///
    /// # Errors
    /// Also if others than its owner may read the file.
    pub fn load(path: &Path, role: Role) -> Result<Self, KeyFileError> {
        let keys: Self = key_file::read(path)?;
        let invalid = |reason| Err(KeyFileError::Invalid { path: path.to_owned(), reason });
        if keys.format != FORMAT {
            return invalid(format!("its format is {}, this program knows {FORMAT}", keys.format));
        }
        if keys.role != role {
            return invalid(format!("it is for role {}, not {role}", keys.role));
        }
        Ok(keys)
    }

    /// Writes the key file, mode 0600, over an older one.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn save(&self, path: &Path) -> Result<(), KeyFileError> {
        key_file::write(path, self, Existing::Replace)
    }

    /// The usual name of a role's key file.
    #[must_use]
    pub fn file_name(role: Role) -> String {
        format!("{role}.keys.json")
    }

    /// Whose keys these are.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// The deployment's id.
    #[must_use]
    pub const fn deployment(&self) -> Uuid {
        self.deployment
    }

    /// Seed of the role's broker user.
    #[must_use]
    pub const fn broker_seed(&self) -> &SecretString {
        &self.broker_seed
    }

    /// Password of the role's Postgres user.
    ///
    /// # Errors
    /// [`KeyError::Missing`], as for all below.
    pub fn postgres_password(&self) -> Result<&SecretString, KeyError> {
        self.held(self.postgres_password.as_ref(), "Postgres password")
    }

    /// A new seal for one door process (see [`DoorSeal`]); make it once at start.
    ///
    /// # Errors
    /// If the public key is absent or degenerate.
    pub fn door_seal(&self) -> Result<DoorSeal, KeyError> {
        const WHAT: &str = "public key of admission";
        let (id, public) = self.held(self.admission_public.as_ref(), WHAT)?.active();
        DoorSeal::new(*public.expose(), &id).map_err(|_| KeyError::Unusable { role: self.role, what: WHAT })
    }

    /// Opens commands.
    ///
    /// # Errors
    /// If the key is absent.
    pub fn admission_seal(&self) -> Result<AdmissionSeal, KeyError> {
        Ok(AdmissionSeal::new(self.held(self.seal.as_ref(), "key that opens commands")?.all()))
    }

    /// Verifies sandbox tokens.
    ///
    /// # Errors
    /// If a public key is absent or no point of the curve.
    pub fn token_verifier(&self) -> Result<TokenVerifier, KeyError> {
        const WHAT: &str = "public key of sandbox tokens";
        let keys = self.held(self.token_public.as_ref(), WHAT)?;
        TokenVerifier::new(self.deployment, keys.all().map(|(id, key)| (id, *key.expose())))
            .map_err(|_| KeyError::Unusable { role: self.role, what: WHAT })
    }

    /// Mints sandbox tokens.
    ///
    /// # Errors
    /// If the key is absent.
    pub fn token_signer(&self) -> Result<TokenSigner, KeyError> {
        let (id, key) = self.held(self.token_signing.as_ref(), "signing key of sandbox tokens")?.active();
        Ok(TokenSigner::new(self.deployment, id, &key))
    }

    /// Tags canonical payloads in the ledger.
    ///
    /// # Errors
    /// If the key is absent.
    pub fn fingerprints(&self) -> Result<HmacKeys, KeyError> {
        Ok(hmac(self.held(self.fingerprint.as_ref(), "fingerprint key")?))
    }

    /// Encrypts credentials at rest; the context is the provider's id.
    ///
    /// # Errors
    /// If the key is absent.
    pub fn credentials(&self) -> Result<CipherKeys, KeyError> {
        Ok(cipher(self.held(self.credential.as_ref(), "credential key")?))
    }

    /// Encrypts environments in snapshots and in replies to the bridge; the context is the sandbox's id.
    ///
    /// # Errors
    /// If the key is absent.
    pub fn snapshots(&self) -> Result<CipherKeys, KeyError> {
        Ok(cipher(self.held(self.snapshot.as_ref(), "snapshot key")?))
    }

    /// Tags environments, so that equal ones can be told without showing them.
    ///
    /// # Errors
    /// If the key is absent.
    pub fn environment_digests(&self) -> Result<HmacKeys, KeyError> {
        Ok(hmac(self.held(self.environment_digest.as_ref(), "environment digest key")?))
    }

    /// Makes and opens page tokens.
    ///
    /// # Errors
    /// If the key is absent.
    pub fn page_tokens(&self) -> Result<PageTokens, KeyError> {
        let keys = self.held(self.page_token.as_ref(), "page token key")?;
        Ok(PageTokens::new(keys.active().1, keys.others().map(|(_, key)| key)))
    }

    fn held<'a, K>(&self, key: Option<&'a K>, what: &'static str) -> Result<&'a K, KeyError> {
        key.ok_or(KeyError::Missing { role: self.role, what })
    }
}

fn hmac(keys: &KeySet) -> HmacKeys {
    HmacKeys::new(keys.active(), keys.others())
}

fn cipher(keys: &KeySet) -> CipherKeys {
    CipherKeys::new(keys.active(), keys.others())
}

pub(crate) mod role_name {
    //! A role as its name.

    use roadstead_proto::role::Role;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
    pub(crate) fn serialize<S: Serializer>(role: &Role, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(role.name())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Role, D::Error> {
        let name = String::deserialize(deserializer)?;
        Role::from_name(&name).ok_or_else(|| D::Error::custom("not a role"))
    }
}
