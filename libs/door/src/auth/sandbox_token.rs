//! The tokens of supervisors.

use std::sync::Arc;

use roadstead_proto::internal::SandboxIdentity;
use roadstead_proto::method::Method;
use roadstead_service_kit::clock;
use roadstead_service_kit::sandbox_token::{TokenError, TokenVerifier};

use super::{Authenticator, Credential, Pending, Principal, Verdict};

/// Knows the tokens that this deployment signed, by the key they name. Whether the generation is still the sandbox's is
/// for admission to say.
#[derive(Debug)]
pub struct SandboxTokens(TokenVerifier);

impl SandboxTokens {
    /// Accepts what `verifier` accepts.
    #[must_use]
    pub const fn new(verifier: TokenVerifier) -> Self {
        Self(verifier)
    }

    fn verdict(&self, method: Method, token: &str) -> Verdict {
        let now = clock::now();
        let verified = match method {
            // The one call that may be made with a token that has expired, though not long ago.
            Method::RefreshSandboxToken => self.0.verify_for_refresh(token, now),
            _ => self.0.verify(token, now),
        };
        match verified {
            Ok(identity) => {
                let principal = Principal::Sandbox(Arc::new(SandboxIdentity {
                    sandbox_id: identity.sandbox_id.to_string(),
                    generation: identity.generation,
                    token: token.to_owned(),
                }));
                // A supervisor's session is fenced by its row and outlives the token it began with.
                Verdict::Accepted(principal, None)
            }
            // Another issuer's token, or no JWT at all.
            Err(TokenError::Malformed | TokenError::Algorithm | TokenError::UnknownKey) => Verdict::OtherKind,
            Err(TokenError::Signature) => Verdict::Refused("the signature of a sandbox token does not fit"),
            Err(TokenError::Expired) => Verdict::Refused("a sandbox token has expired"),
            Err(TokenError::Foreign | TokenError::Claims | TokenError::NotYetValid) => {
                Verdict::Refused("the claims of a sandbox token are not acceptable")
            }
        }
    }
}

impl Authenticator for SandboxTokens {
    fn authenticate<'a>(&'a self, method: Method, credential: Credential<'a>) -> Pending<'a> {
        let verdict = match credential {
            Credential::Bearer(token) => self.verdict(method, token),
            Credential::Nothing => Verdict::OtherKind,
        };
        Box::pin(std::future::ready(verdict))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use roadstead_proto::sealing::SecretKey;
    use roadstead_service_kit::sandbox_token::TokenSigner;
    use secrecy::ExposeSecret as _;
    use uuid::Uuid;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    struct Deployment {
        id: Uuid,
        signer: TokenSigner,
        authenticator: SandboxTokens,
    }

    fn deployment(key: u8) -> Deployment {
        let id = Uuid::from_u128(1);
        let public = ed25519_dalek::SigningKey::from_bytes(&[key; 32]).verifying_key().to_bytes();
        let signer = TokenSigner::new(id, format!("key-{key}"), &SecretKey::from_bytes([key; 32]));
        let verifier = TokenVerifier::new(id, [(format!("key-{key}"), public)]).unwrap();
        Deployment { id, signer, authenticator: SandboxTokens::new(verifier) }
    }

    fn minted(deployment: &Deployment, sandbox: Uuid, age: Duration) -> String {
        let minted = deployment.signer.mint(sandbox, 7, clock::now() - age, HOUR);
        minted.token.expose_secret().to_owned()
    }

    #[test]
    fn a_token_of_this_deployment_is_its_sandbox() {
        let here = deployment(1);
        let sandbox = Uuid::from_u128(here.id.as_u128() + 1);
        let token = minted(&here, sandbox, Duration::ZERO);
        let Verdict::Accepted(Principal::Sandbox(identity), _) =
            here.authenticator.verdict(Method::GetSandboxConfig, &token)
        else {
            panic!("not accepted")
        };
        assert_eq!((identity.sandbox_id.as_str(), identity.generation), (sandbox.to_string().as_str(), 7));
        let principal = Principal::Sandbox(identity);
        let token_of = |principal: roadstead_proto::internal::Principal| match principal.kind {
            Some(roadstead_proto::internal::principal::Kind::Sandbox(sandbox)) => sandbox.token,
            _ => panic!("a sandbox"),
        };
        assert_eq!(token_of(principal.for_command()), token);
        assert_eq!(token_of(principal.for_read()), "", "reads are not sealed");
    }

    #[test]
    fn an_expired_token_is_good_for_its_refresh_only() {
        let here = deployment(1);
        let token = minted(&here, Uuid::from_u128(2), 2 * HOUR);
        assert!(matches!(here.authenticator.verdict(Method::RefreshSandboxToken, &token), Verdict::Accepted(..)));
        assert!(matches!(here.authenticator.verdict(Method::ConnectSupervisor, &token), Verdict::Refused(_)));
        let too_old = minted(&here, Uuid::from_u128(2), 26 * HOUR);
        assert!(matches!(here.authenticator.verdict(Method::RefreshSandboxToken, &too_old), Verdict::Refused(_)));
    }

    #[test]
    fn tokens_of_others_and_altered_ones_are_not_accepted() {
        let (here, there) = (deployment(1), deployment(2));
        let foreign = minted(&there, Uuid::from_u128(2), Duration::ZERO);
        assert!(matches!(here.authenticator.verdict(Method::GetSandbox, &foreign), Verdict::OtherKind));
        assert!(matches!(here.authenticator.verdict(Method::GetSandbox, "not-a-jwt"), Verdict::OtherKind));

        let good = minted(&here, Uuid::from_u128(2), Duration::ZERO);
        let mut parts = good.split('.').map(str::to_owned).collect::<Vec<_>>();
        parts[1] = minted(&here, Uuid::from_u128(3), Duration::ZERO).split('.').nth(1).unwrap().to_owned();
        assert!(matches!(here.authenticator.verdict(Method::GetSandbox, &parts.join(".")), Verdict::Refused(_)));
    }
}
