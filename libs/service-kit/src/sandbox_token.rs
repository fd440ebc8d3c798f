//! Tokens by which a sandbox's supervisor shows who it is: JWTs, signed with Ed25519 and nothing else.
//!
//! Written on the signature library itself rather than on a JWT library: there is one algorithm, chosen here and never
//! by the token, and the time is an argument.

mod claims;
pub(crate) mod compact;

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use roadstead_proto::sealing::SecretKey;
use secrecy::SecretString;
use uuid::Uuid;

use claims::Claims;
use compact::Header;

/// How far clocks may differ.
const LEEWAY: Duration = Duration::from_secs(60);
/// How long after its expiry a token may still be exchanged for a new one.
const REFRESH_WINDOW: Duration = Duration::from_secs(24 * 60 * 60);

/// The generation of who has none: a workload that a platform vouches for. Tokens name 1 and more.
pub const NO_GENERATION: u64 = 0;
/// Longest token that is looked at, in bytes; ours have about 600.
const MAX_BYTES: usize = 2048;

/// What a verified token says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SandboxIdentity {
    pub sandbox_id: Uuid,
    /// Must equal the sandbox row's for the token to count.
    pub generation: u64,
    pub expires_at: SystemTime,
}

impl SandboxIdentity {
    /// Up to when the token counts, the difference of clocks included.
    #[must_use]
    pub fn accepted_until(&self) -> SystemTime {
        self.expires_at + LEEWAY
    }
}

/// A new token.
#[derive(Debug)]
pub struct Minted {
    pub token: SecretString,
    pub expires_at: SystemTime,
}

/// Why a token is refused. For metrics and the log; a caller is told only that it is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("not a token of this shape")]
    Malformed,
    #[error("not signed with the one algorithm in use")]
    Algorithm,
    #[error("signed with a key that is not known here")]
    UnknownKey,
    #[error("the signature does not fit")]
    Signature,
    #[error("issued by or for somebody else")]
    Foreign,
    #[error("the claims contradict each other")]
    Claims,
    #[error("not valid yet")]
    NotYetValid,
    #[error("expired")]
    Expired,
}

/// A public key that is no point of the curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an Ed25519 public key")]
pub struct BadPublicKey;

/// Mints tokens.
pub struct TokenSigner {
    issuer: String,
    key_id: String,
    key: SigningKey,
}

/// Verifies tokens.
#[derive(Clone)]
pub struct TokenVerifier {
    issuer: String,
    keys: BTreeMap<String, VerifyingKey>,
}

impl TokenSigner {
    /// Signs with this key for this deployment.
    #[must_use]
    pub fn new(deployment: Uuid, key_id: String, key: &SecretKey) -> Self {
        Self { issuer: issuer(deployment), key_id, key: SigningKey::from_bytes(key.expose()) }
    }

    /// A token for one generation of a sandbox, valid for `lifetime` from `now`, in whole seconds.
    #[must_use]
    pub fn mint(&self, sandbox_id: Uuid, generation: u64, now: SystemTime, lifetime: Duration) -> Minted {
        let claims = Claims::new(&self.issuer, sandbox_id, generation, now, lifetime);
        let signed = compact::signed_part(&Header::new(&self.key_id), &claims);
        let signature = self.key.sign(signed.as_bytes());
        let token = compact::with_signature(signed, &signature.to_bytes());
        Minted { token: token.into(), expires_at: claims.expires_at() }
    }
}

impl TokenVerifier {
    /// Accepts the tokens of this deployment signed with one of these keys.
    ///
    /// # Errors
    /// [`BadPublicKey`].
    pub fn new(
        deployment: Uuid,
        public_keys: impl IntoIterator<Item = (String, [u8; 32])>,
    ) -> Result<Self, BadPublicKey> {
        let keys = public_keys.into_iter().map(|(id, key)| Ok((id, VerifyingKey::from_bytes(&key)?)));
        let keys = keys.collect::<Result<_, ed25519_dalek::SignatureError>>().map_err(|_| BadPublicKey)?;
        Ok(Self { issuer: issuer(deployment), keys })
    }

    /// Who the token is for, if it is valid at `now`.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn verify(&self, token: &str, now: SystemTime) -> Result<SandboxIdentity, TokenError> {
        self.verify_within(token, now, LEEWAY)
    }

    /// As [`Self::verify`], but for the exchange of a token for a new one: up to 24 hours after its expiry.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn verify_for_refresh(&self, token: &str, now: SystemTime) -> Result<SandboxIdentity, TokenError> {
        self.verify_within(token, now, REFRESH_WINDOW)
    }

    fn verify_within(&self, token: &str, now: SystemTime, grace: Duration) -> Result<SandboxIdentity, TokenError> {
        let parts = compact::split(token, MAX_BYTES)?;
        let header: Header = parts.header()?;
        let key = self.keys.get(header.key_id()?).ok_or(TokenError::UnknownKey)?;
        let signature = parts.signature()?.try_into().map_err(|_| TokenError::Signature)?;
        let signature = Signature::from_bytes(&signature);
        key.verify_strict(parts.signed.as_bytes(), &signature).map_err(|_| TokenError::Signature)?;
        // Nothing of the claims is looked at before the signature fits.
        let claims: Claims = parts.claims()?;
        claims.check(&self.issuer, now, LEEWAY, grace)
    }
}

/// Issuer and audience alike.
fn issuer(deployment: Uuid) -> String {
    format!("openshell-gateway:{deployment}")
}

impl fmt::Debug for TokenSigner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TokenSigner").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

impl fmt::Debug for TokenVerifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TokenVerifier").field("keys", &self.keys.keys()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
