//! Public keys of an issuer, as a JSON Web Key Set: RSA of 2048 bits and more, and P-256.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use ring::signature::{ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;

use crate::sandbox_token::TokenError;

/// Why a file holds no keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    #[error("not a JSON Web Key Set")]
    Malformed,
    #[error("it has no RSA or P-256 key with an id")]
    Nothing,
    #[error("it has two keys with one id")]
    Twice,
}

/// The algorithms that keys decide on; no other is known.
#[derive(Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    #[serde(rename = "RS256")]
    Rs256,
    #[serde(rename = "ES256")]
    Es256,
}

#[derive(Clone)]
enum Key {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// The uncompressed point.
    P256(Vec<u8>),
}

/// Keys by their ids.
#[derive(Clone)]
pub(super) struct Keys(BTreeMap<String, Key>);

#[derive(Deserialize)]
struct Set {
    keys: Vec<Jwk>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    n: Option<String>,
    e: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Keys {
    /// Reads a set. Keys of other kinds are left out.
    pub(super) fn parse(text: &[u8]) -> Result<Self, KeysError> {
        let set: Set = serde_json::from_slice(text).map_err(|_| KeysError::Malformed)?;
        let mut keys = BTreeMap::new();
        for jwk in set.keys {
            let Some(id) = jwk.kid.clone() else { continue };
            let Some(key) = jwk.key()? else { continue };
            if keys.insert(id, key).is_some() {
                return Err(KeysError::Twice);
            }
        }
        if keys.is_empty() { Err(KeysError::Nothing) } else { Ok(Self(keys)) }
    }

    /// Whether this key signed the message. The key decides on the algorithm, never the token.
    pub(super) fn verify(
        &self,
        id: &str,
        algorithm: Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), TokenError> {
        let verified = match (self.0.get(id).ok_or(TokenError::UnknownKey)?, algorithm) {
            (Key::Rsa { modulus, exponent }, Algorithm::Rs256) => RsaPublicKeyComponents { n: modulus, e: exponent }
                .verify(&RSA_PKCS1_2048_8192_SHA256, message, signature),
            (Key::P256(point), Algorithm::Es256) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            _ => return Err(TokenError::Algorithm),
        };
        verified.map_err(|_| TokenError::Signature)
    }
}

impl Jwk {
    /// None: of another kind.
    fn key(self) -> Result<Option<Key>, KeysError> {
        let bytes = |text: Option<String>| {
            text.and_then(|text| BASE64URL.decode(text).ok())
                .filter(|bytes| !bytes.is_empty())
                .ok_or(KeysError::Malformed)
        };
        match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => Ok(Some(Key::Rsa { modulus: bytes(self.n)?, exponent: bytes(self.e)? })),
            ("EC", Some("P-256")) => {
                let point = [vec![4], bytes(self.x)?, bytes(self.y)?].concat();
                if point.len() == 65 { Ok(Some(Key::P256(point))) } else { Err(KeysError::Malformed) }
            }
            _ => Ok(None),
        }
    }
}
