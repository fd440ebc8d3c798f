//! Workloads that a platform vouches for, before they have a sandbox's token.

use std::sync::Arc;

use roadstead_proto::internal::SandboxIdentity;
use roadstead_proto::method::Method;
use roadstead_service_kit::bootstrap_token::BootstrapVerifier;
use roadstead_service_kit::clock;
use roadstead_service_kit::sandbox_token::{NO_GENERATION, TokenError};

use super::{Authenticator, Credential, Pending, Principal, Verdict};

/// Knows the tokens of a platform, for the one call that they are good for.
#[derive(Debug)]
pub struct BootstrapTokens(BootstrapVerifier);

impl BootstrapTokens {
    /// Accepts what `verifier` accepts.
    #[must_use]
    pub const fn new(verifier: BootstrapVerifier) -> Self {
        Self(verifier)
    }

    fn verdict(&self, method: Method, token: &str) -> Verdict {
        if method != Method::IssueSandboxToken {
            return Verdict::OtherKind;
        }
        match self.0.verify(token, clock::now()) {
            Ok(identity) => {
                let principal = Principal::Sandbox(Arc::new(SandboxIdentity {
                    sandbox_id: identity.sandbox_id.to_string(),
                    generation: NO_GENERATION,
                    token: token.to_owned(),
                }));
                Verdict::Accepted(principal, None)
            }
            Err(TokenError::Malformed | TokenError::Algorithm | TokenError::UnknownKey) => Verdict::OtherKind,
            Err(TokenError::Signature) => Verdict::Refused("the signature of a bootstrap token does not fit"),
            Err(TokenError::Expired) => Verdict::Refused("a bootstrap token has expired, or is too old"),
            Err(TokenError::Foreign | TokenError::Claims | TokenError::NotYetValid) => {
                Verdict::Refused("the claims of a bootstrap token are not acceptable")
            }
        }
    }
}

impl Authenticator for BootstrapTokens {
    fn authenticate<'a>(&'a self, method: Method, credential: Credential<'a>) -> Pending<'a> {
        let verdict = match credential {
            Credential::Bearer(token) => self.verdict(method, token),
            Credential::Nothing => Verdict::OtherKind,
        };
        Box::pin(std::future::ready(verdict))
    }
}
