//! A sandbox's token on its way from the bridge to config-snapshot. Reads travel unsealed, so the token is encrypted by
//! itself, under the snapshot key, which both hold.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::{CipherKeys, OpenError};

/// No object's id, so that nothing else that is encrypted under the key can pass for a token.
const CONTEXT: &[u8] = b"token of a sandbox";

/// The token as it is passed on.
#[must_use]
pub fn seal_token(keys: &CipherKeys, token: &str) -> String {
    STANDARD.encode(keys.encrypt(CONTEXT, token.as_bytes()))
}

/// The token that was passed on.
///
/// # Errors
///
/// If it is not one that [`seal_token`] made under one of the keys.
pub fn open_token(keys: &CipherKeys, sealed: &str) -> Result<Zeroizing<String>, OpenError> {
    let sealed = STANDARD.decode(sealed).map_err(|_| OpenError::Malformed)?;
    let token = String::from_utf8(keys.decrypt(CONTEXT, &sealed)?).map_err(|_| OpenError::Malformed)?;
    Ok(Zeroizing::new(token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sealing::SecretKey;

    fn keys(key: u8) -> CipherKeys {
        CipherKeys::new((format!("k{key}"), SecretKey::from_bytes([key; 32])), [])
    }

    #[test]
    fn a_token_opens_where_the_key_is_and_nowhere_else() {
        let sealed = seal_token(&keys(1), "a.b.c");
        assert!(!sealed.contains("a.b.c"));
        assert_eq!(open_token(&keys(1), &sealed).unwrap().as_str(), "a.b.c");
        assert_eq!(open_token(&keys(2), &sealed).unwrap_err(), OpenError::UnknownKey);
    }

    #[test]
    fn plain_tokens_and_other_secrets_are_no_passed_tokens() {
        let environment = STANDARD.encode(keys(1).encrypt(&[7; 16], b"a.b.c"));
        for sealed in ["", "a.b.c", environment.as_str()] {
            assert!(open_token(&keys(1), sealed).is_err(), "{sealed}");
        }
    }
}
