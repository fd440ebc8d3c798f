//! The compact form of a JWT: header, claims and signature, each base64url without padding, joined by dots.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::TokenError;

const ALGORITHM: &str = "EdDSA";
const TYPE: &str = "JWT";

/// The header; one with anything else in it (`crit`, `jwk`, …) is refused.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    alg: String,
    typ: String,
    kid: String,
}

impl Header {
    pub(super) fn new(key_id: &str) -> Self {
        Self { alg: ALGORITHM.to_owned(), typ: TYPE.to_owned(), kid: key_id.to_owned() }
    }

    /// The id of the key, if the header is of the one kind that exists.
    pub(super) fn key_id(&self) -> Result<&str, TokenError> {
        if self.alg != ALGORITHM {
            return Err(TokenError::Algorithm);
        }
        // Tokens for other purposes have another type.
        if self.typ == TYPE { Ok(&self.kid) } else { Err(TokenError::Foreign) }
    }
}

/// A token's three parts, still encoded.
pub(crate) struct Parts<'a> {
    /// Header, dot and claims: what the signature is over.
    pub(crate) signed: &'a str,
    header: &'a str,
    claims: &'a str,
    signature: &'a str,
}

/// Takes a token of at most so many bytes apart.
pub(crate) fn split(token: &str, max_bytes: usize) -> Result<Parts<'_>, TokenError> {
    if token.len() > max_bytes {
        return Err(TokenError::Malformed);
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
    // A fourth part leaves a dot in one of these, which is no base64url.
    let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
    Ok(Parts { signed, header, claims, signature })
}

impl Parts<'_> {
    pub(crate) fn header<T: DeserializeOwned>(&self) -> Result<T, TokenError> {
        json(self.header)
    }

    pub(crate) fn claims<T: DeserializeOwned>(&self) -> Result<T, TokenError> {
        json(self.claims)
    }

    pub(crate) fn signature(&self) -> Result<Vec<u8>, TokenError> {
        bytes(self.signature)
    }
}

/// Decodes; padding, other alphabets and unused bits that are set are refused, so each value has one text.
fn bytes(part: &str) -> Result<Vec<u8>, TokenError> {
    BASE64URL.decode(part).map_err(|_| TokenError::Malformed)
}

fn json<T: DeserializeOwned>(part: &str) -> Result<T, TokenError> {
    serde_json::from_slice(&bytes(part)?).map_err(|_| TokenError::Malformed)
}

/// Header, dot and claims.
#[allow(clippy::expect_used, reason = "strings and numbers always have a JSON form")]
pub(super) fn signed_part<T: Serialize>(header: &Header, claims: &T) -> String {
    let encode = |json: serde_json::Result<Vec<u8>>| BASE64URL.encode(json.expect("strings and numbers"));
    format!("{}.{}", encode(serde_json::to_vec(header)), encode(serde_json::to_vec(claims)))
}

/// The whole token.
pub(super) fn with_signature(mut signed: String, signature: &[u8; 64]) -> String {
    signed.push('.');
    BASE64URL.encode_string(signature, &mut signed);
    signed
}
