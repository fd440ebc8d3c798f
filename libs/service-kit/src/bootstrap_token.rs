//! Tokens by which a platform says which sandbox a workload is, before it has the sandbox's own token: the projected
//! service-account tokens of a Kubernetes cluster, or of any issuer that signs in the same way.
//!
//! They are verified offline, with keys from a file. A token names its sandbox by its subject, after a pattern that the
//! operator sets, so whoever may create service accounts of that pattern decides who is which sandbox.

mod keys;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use uuid::Uuid;

use crate::sandbox_token::TokenError;
use crate::sandbox_token::compact;
use keys::{Algorithm, Keys};

pub use keys::KeysError;

/// Stands for the sandbox's id in the pattern of subjects.
pub const PLACEHOLDER: &str = "{sandbox_id}";

/// Longest token that is looked at, in bytes.
const MAX_BYTES: usize = 8192;
/// How far clocks may differ.
const LEEWAY: Duration = Duration::from_secs(60);
/// A token that was issued earlier is refused, however long it says to be valid. Kubelets renew theirs sooner.
const OLDEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Whom to believe.
#[derive(Clone, Debug)]
pub struct Trust {
    pub issuer: String,
    /// What tokens must be for.
    pub audience: String,
    /// Subjects of sandboxes, with [`PLACEHOLDER`] once.
    pub subject: String,
    /// The issuer's public keys, as a JSON Web Key Set.
    pub keys: PathBuf,
}

/// What a verified token says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootstrapIdentity {
    pub sandbox_id: Uuid,
    pub issued_at: SystemTime,
}

/// Why nobody can be believed.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("the subject of sandboxes must contain {PLACEHOLDER} once")]
    Subject,
    #[error("issuer and audience of bootstrap identities must not be empty")]
    Empty,
    #[error("the keys of the bootstrap issuer, {}: {source}", .path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("the keys of the bootstrap issuer, {}: {source}", .path.display())]
    Keys { path: PathBuf, source: KeysError },
}

/// Verifies tokens.
#[derive(Clone)]
pub struct BootstrapVerifier {
    issuer: String,
    audience: String,
    /// What stands before and behind the id.
    subject: (String, String),
    keys: Keys,
}

/// One with anything else in it (`crit`, `jwk`, …) is refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    alg: Algorithm,
    kid: String,
    #[serde(default, rename = "typ")]
    _type: Option<String>,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: Audience,
    sub: String,
    iat: u64,
    exp: u64,
    #[serde(default)]
    nbf: u64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl BootstrapVerifier {
    /// Reads the keys. They are not read again.
    ///
    /// # Errors
    /// See [`TrustError`].
    pub fn load(trust: &Trust) -> Result<Self, TrustError> {
        let path = |path: &Path| path.to_owned();
        let file = std::fs::read(&trust.keys);
        let text = file.map_err(|source| TrustError::File { path: path(&trust.keys), source })?;
        let keys = Keys::parse(&text).map_err(|source| TrustError::Keys { path: path(&trust.keys), source })?;
        let subject = trust.subject.split_once(PLACEHOLDER).ok_or(TrustError::Subject)?;
        if subject.1.contains(PLACEHOLDER) {
            return Err(TrustError::Subject);
        }
        if trust.issuer.is_empty() || trust.audience.is_empty() {
            return Err(TrustError::Empty);
        }
        let subject = (subject.0.to_owned(), subject.1.to_owned());
        Ok(Self { issuer: trust.issuer.clone(), audience: trust.audience.clone(), subject, keys })
    }

    /// Which sandbox the token is for, if it is valid at `now`.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn verify(&self, token: &str, now: SystemTime) -> Result<BootstrapIdentity, TokenError> {
        let parts = compact::split(token, MAX_BYTES)?;
        let header: Header = parts.header()?;
        self.keys.verify(&header.kid, header.alg, parts.signed.as_bytes(), &parts.signature()?)?;
        // Nothing of the claims is looked at before the signature fits.
        let claims: Claims = parts.claims()?;
        let is_for_us = match &claims.aud {
            Audience::One(one) => *one == self.audience,
            Audience::Many(many) => many.contains(&self.audience),
        };
        if claims.iss != self.issuer || !is_for_us {
            return Err(TokenError::Foreign);
        }
        let at = |seconds: u64| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).ok_or(TokenError::Claims);
        let (issued_at, expires_at) = (at(claims.iat)?, at(claims.exp)?);
        if issued_at >= expires_at {
            return Err(TokenError::Claims);
        }
        if at(claims.iat.max(claims.nbf))? > now + LEEWAY {
            return Err(TokenError::NotYetValid);
        }
        // Subtracted: what a token says may be the last time there is.
        let past = now - LEEWAY;
        if past > expires_at || past > issued_at + OLDEST {
            return Err(TokenError::Expired);
        }
        let sandbox_id = self.sandbox(&claims.sub).ok_or(TokenError::Claims)?;
        Ok(BootstrapIdentity { sandbox_id, issued_at })
    }

    /// The id in a subject, in the one form in which ids are written.
    fn sandbox(&self, subject: &str) -> Option<Uuid> {
        let (before, behind) = &self.subject;
        let text = subject.strip_prefix(before.as_str())?.strip_suffix(behind.as_str())?;
        let id = Uuid::try_parse(text).ok()?;
        (id.to_string() == text && !id.is_nil()).then_some(id)
    }
}

impl fmt::Debug for BootstrapVerifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("BootstrapVerifier").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
