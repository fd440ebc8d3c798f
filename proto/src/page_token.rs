//! Page tokens: opaque to clients, bound to the call that gave them, unforgeable (behaviour 1.5).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac as _};
use prost::Message as _;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::internal::PageToken;
use crate::method::Method;
use crate::sealing::SecretKey;

/// Longest token text that is looked at, in bytes.
const MAX_TEXT: usize = 2048;
const VERSION: u32 = 1;
const TAG: usize = 16;

/// Makes tokens under the deployment's active page-token key, and opens those of any of its keys: a rotation of keys ends no
/// paging that is under way.
#[derive(Clone)]
pub struct PageTokens {
    active: SecretKey,
    others: Vec<SecretKey>,
}

impl std::fmt::Debug for PageTokens {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("PageTokens")
    }
}

/// The token was not made for this call. Why is nobody's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("page_token is not valid for this request; repeat the call without it to start from the first page")]
pub struct InvalidPageToken;

impl PageTokens {
    /// With the keys that every replica shares: the one that makes tokens, and those that only open them.
    #[must_use]
    pub fn new(active: SecretKey, others: impl IntoIterator<Item = SecretKey>) -> Self {
        Self { active, others: others.into_iter().collect() }
    }

    /// A token that resumes `method` with the same `parameters` after `cursor`.
    #[must_use]
    pub fn issue(&self, method: Method, parameters: &[&str], cursor: &[u8]) -> String {
        let mut bytes = PageToken { version: VERSION, cursor: cursor.to_vec().into() }.encode_to_vec();
        let tag = tag(&self.active, method, parameters, &bytes).finalize().into_bytes();
        bytes.extend_from_slice(&tag[..TAG]);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The cursor inside a token that was issued for the same method and parameters.
    pub fn open(&self, method: Method, parameters: &[&str], token: &str) -> Result<Vec<u8>, InvalidPageToken> {
        if token.len() > MAX_TEXT {
            return Err(InvalidPageToken);
        }
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| InvalidPageToken)?;
        let split = bytes.len().checked_sub(TAG).ok_or(InvalidPageToken)?;
        let (message, tag) = bytes.split_at(split);
        let made_under = |key| self::tag(key, method, parameters, message).verify_truncated_left(tag).is_ok();
        if !std::iter::once(&self.active).chain(&self.others).any(made_under) {
            return Err(InvalidPageToken);
        }
        let token = PageToken::decode(message).map_err(|_| InvalidPageToken)?;
        if token.version == VERSION { Ok(token.cursor.into()) } else { Err(InvalidPageToken) }
    }
}

fn tag(key: &SecretKey, method: Method, parameters: &[&str], message: &[u8]) -> Hmac<Sha256> {
    // A shorter key is padded with zeros by the definition of HMAC; padding it here leaves nothing that can fail.
    let mut block = Zeroizing::new([0; 64]);
    block[..32].copy_from_slice(key.expose());
    let mut mac = <Hmac<Sha256> as hmac::Mac>::new((&*block).into());
    for part in std::iter::once(&method.name()).chain(parameters) {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part.as_bytes());
    }
    mac.update(message);
    mac
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(byte: u8) -> SecretKey {
        SecretKey::from_bytes([byte; 32])
    }

    fn tokens() -> PageTokens {
        PageTokens::new(key(7), [])
    }

    #[test]
    fn a_rotation_of_keys_ends_no_paging_and_a_retired_key_does() {
        let opens = |tokens: &PageTokens, token: &str| tokens.open(Method::ListSandboxes, &["w"], token).is_ok();
        let issue = |tokens: &PageTokens| tokens.issue(Method::ListSandboxes, &["w"], b"here");
        let announced = PageTokens::new(key(7), [key(8)]);
        let rotated = PageTokens::new(key(8), [key(7)]);
        // Replicas get their keys one after the other, so each step meets the one before it.
        for (made_by, opened_by) in [(&tokens(), &announced), (&announced, &rotated), (&rotated, &announced)] {
            assert!(opens(opened_by, &issue(made_by)));
        }
        let retired = PageTokens::new(key(8), []);
        assert!(!opens(&retired, &issue(&announced)) && opens(&retired, &issue(&rotated)));
    }

    proptest! {
        #[test]
        fn a_token_gives_its_cursor_back(cursor in proptest::collection::vec(any::<u8>(), 0..200), p in ".{0,20}") {
            let token = tokens().issue(Method::ListSandboxes, &[&p], &cursor);
            prop_assert_eq!(tokens().open(Method::ListSandboxes, &[&p], &token), Ok(cursor));
        }

        #[test]
        fn a_token_is_bound_to_method_parameters_and_key(cursor in proptest::collection::vec(any::<u8>(), 0..50)) {
            let token = tokens().issue(Method::ListSandboxes, &["a", "b"], &cursor);
            prop_assert!(tokens().open(Method::ListProviders, &["a", "b"], &token).is_err());
            prop_assert!(tokens().open(Method::ListSandboxes, &["ab", ""], &token).is_err());
            prop_assert!(tokens().open(Method::ListSandboxes, &["a"], &token).is_err());
            prop_assert!(PageTokens::new(key(8), []).open(Method::ListSandboxes, &["a", "b"], &token).is_err());
        }

        #[test]
        fn an_edited_token_is_refused(cursor in proptest::collection::vec(any::<u8>(), 0..50), at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let mut bytes = URL_SAFE_NO_PAD.decode(tokens().issue(Method::ListSandboxes, &[], &cursor)).unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(tokens().open(Method::ListSandboxes, &[], &URL_SAFE_NO_PAD.encode(bytes)).is_err());
        }

        #[test]
        fn other_text_is_refused(text in ".*") {
            prop_assert!(tokens().open(Method::ListSandboxes, &[], &text).is_err());
        }
    }
}
