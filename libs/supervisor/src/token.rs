//! The sandbox's token: where it comes from, what it says of itself, and when it is due to be refreshed.
//!
//! The signature is the server's business; the claims are read only to know the sandbox and the times.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use uuid::Uuid;

use crate::apply::write_whole;

/// Part of its lifetime after which a token is refreshed.
const REFRESH_AFTER: f64 = 0.8;

/// Where the token is found at start.
#[derive(Clone, Debug)]
pub enum TokenSource {
    /// Handed over in memory; refreshed tokens are kept there too.
    Given(SecretString),
    /// In a file, which is read again before each connection and gets refreshed tokens, mode 0600.
    File(PathBuf),
}

/// A token and what it says of itself.
#[derive(Clone, Debug)]
pub struct Token {
    secret: SecretString,
    sandbox_id: Uuid,
    issued: SystemTime,
    /// None: never.
    expires: Option<SystemTime>,
}

/// Why there is no usable token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read or written.
    #[error("the token file {path}: {source}", path = .path.display())]
    File { path: PathBuf, source: io::Error },
    /// It is not a JWT with the claims of a sandbox.
    #[error("not the token of a sandbox")]
    Malformed,
}

#[derive(Deserialize)]
struct Claims {
    sandbox_id: Uuid,
    #[serde(default)]
    iat: u64,
    #[serde(default)]
    exp: u64,
}

impl Token {
    /// Reads the claims of a token.
    ///
    /// # Errors
    ///
    /// [`TokenError::Malformed`].
    pub fn read(secret: SecretString) -> Result<Self, TokenError> {
        let claims = claims(secret.expose_secret()).ok_or(TokenError::Malformed)?;
        let at = |seconds: u64| UNIX_EPOCH + Duration::from_secs(seconds);
        Ok(Self {
            secret,
            sandbox_id: claims.sandbox_id,
            issued: at(claims.iat),
            expires: (claims.exp > 0).then(|| at(claims.exp)),
        })
    }

    /// The sandbox it is for.
    #[must_use]
    pub const fn sandbox_id(&self) -> Uuid {
        self.sandbox_id
    }

    /// The token itself.
    #[must_use]
    pub const fn secret(&self) -> &SecretString {
        &self.secret
    }

    /// When it should be refreshed; None if it never expires.
    #[must_use]
    pub fn refresh_at(&self) -> Option<SystemTime> {
        let lifetime = self.expires?.duration_since(self.issued).unwrap_or_default();
        Some(self.issued + lifetime.mul_f64(REFRESH_AFTER))
    }
}

impl TokenSource {
    /// The token that is there now.
    ///
    /// # Errors
    ///
    /// See [`TokenError`].
    pub fn load(&self) -> Result<Token, TokenError> {
        match self {
            Self::Given(secret) => Token::read(secret.clone()),
            Self::File(path) => {
                let text =
                    std::fs::read_to_string(path).map_err(|source| TokenError::File { path: path.clone(), source })?;
                Token::read(text.trim().to_owned().into())
            }
        }
    }

    /// Keeps a refreshed token.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn keep(&mut self, token: &Token) -> Result<(), TokenError> {
        match self {
            Self::Given(secret) => *secret = token.secret.clone(),
            Self::File(path) => write_whole(path, token.secret.expose_secret().as_bytes(), 0o600)
                .map_err(|source| TokenError::File { path: path.clone(), source })?,
        }
        Ok(())
    }
}

fn claims(token: &str) -> Option<Claims> {
    let mut parts = token.split('.');
    let (_header, claims, _signature) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn token(claims: &serde_json::Value) -> SecretString {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string())).into()
    }

    #[test]
    fn a_token_is_due_after_four_fifths_of_its_lifetime() {
        let id = Uuid::from_u128(7);
        let token = Token::read(token(&serde_json::json!({"sandbox_id": id, "iat": 1000, "exp": 1900}))).unwrap();
        assert_eq!(token.sandbox_id(), id);
        assert_eq!(token.refresh_at(), Some(UNIX_EPOCH + Duration::from_secs(1720)));
    }

    #[test]
    fn a_token_without_expiry_is_never_due() {
        let token = token(&serde_json::json!({"sandbox_id": Uuid::nil(), "iat": 1000, "exp": 0}));
        assert_eq!(Token::read(token).unwrap().refresh_at(), None);
    }

    #[test]
    fn other_texts_are_no_tokens() {
        for text in ["", "a", "a.b", "a.b.c", "e30.e30.x", "e30.e30.x.y", "{}.{}.{}"] {
            assert!(Token::read(text.to_owned().into()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_refreshed_token_replaces_the_one_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let of = |id| token(&serde_json::json!({"sandbox_id": Uuid::from_u128(id), "iat": 1, "exp": 2}));
        std::fs::write(&path, format!("{}\n", of(1).expose_secret())).unwrap();
        let mut source = TokenSource::File(path.clone());
        assert_eq!(source.load().unwrap().sandbox_id(), Uuid::from_u128(1));
        source.keep(&Token::read(of(2)).unwrap()).unwrap();
        assert_eq!(source.load().unwrap().sandbox_id(), Uuid::from_u128(2));
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
