//! Credentials at rest, under the deployment's credential key.

use std::fmt;

use bytes::Bytes;
use roadstead_proto::sealing::CipherKeys;
use uuid::Uuid;

use crate::context::Vault;

/// Seals credentials for one provider each.
pub struct CredentialVault {
    keys: CipherKeys,
    /// What sealing adds to a value, in bytes.
    overhead: usize,
}

impl CredentialVault {
    /// Seals with these keys.
    #[must_use]
    pub fn new(keys: CipherKeys) -> Self {
        let overhead = keys.encrypt(b"", b"").len();
        Self { keys, overhead }
    }
}

impl Vault for CredentialVault {
    fn seal(&self, provider_id: Uuid, value: &str) -> Bytes {
        self.keys.encrypt(provider_id.as_bytes(), value.as_bytes()).into()
    }

    fn length(&self, sealed: &Bytes) -> usize {
        sealed.len().saturating_sub(self.overhead)
    }
}

impl fmt::Debug for CredentialVault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CredentialVault(..)")
    }
}

#[cfg(test)]
mod tests {
    use roadstead_proto::sealing::SecretKey;

    use super::*;

    fn keys() -> CipherKeys {
        CipherKeys::new(("k".to_owned(), SecretKey::from_bytes([7; 32])), [])
    }

    #[test]
    fn a_credential_opens_for_its_provider_only() {
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let vault = CredentialVault::new(keys());
        let sealed = vault.seal(one, "hush");
        assert!(!sealed.windows(4).any(|bytes| bytes == b"hush"));
        assert_eq!(keys().decrypt(one.as_bytes(), &sealed).unwrap(), b"hush");
        assert!(keys().decrypt(other.as_bytes(), &sealed).is_err());
        assert_eq!(vault.length(&sealed), 4);
    }
}
