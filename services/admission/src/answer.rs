//! What a settled command's caller is told.

use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use prost::Message as _;
use prost_types::Timestamp;
use roadstead_proto::api::v1::{IssueSandboxTokenResponse, RefreshSandboxTokenResponse};
use roadstead_proto::internal::{Answer, Receipt, answer, receipt};
use roadstead_service_kit::sandbox_token::{Minted, TokenSigner};
use roadstead_store::mutation::Outcome;
use secrecy::ExposeSecret as _;
use uuid::Uuid;

use crate::attempt::status;
use crate::refusal::Refusal;

/// Mints tokens for sandboxes.
#[derive(Debug)]
pub struct Minter {
    pub signer: TokenSigner,
    pub lifetime: Duration,
}

impl Minter {
    /// A token for one generation of a sandbox.
    #[must_use]
    pub fn mint(&self, sandbox_id: Uuid, generation: u64, now: SystemTime) -> Minted {
        self.signer.mint(sandbox_id, generation, now, self.lifetime)
    }

    /// The answer that an outcome stands for; none while it is not known.
    #[must_use]
    pub fn answer(&self, command_id: Uuid, outcome: &Outcome, now: SystemTime) -> Option<Answer> {
        let (outcome, replayed) = match outcome {
            Outcome::Response { body, replayed } => (answer::Outcome::Response(body.clone()), *replayed),
            Outcome::Refused(status) => (answer::Outcome::Status(status.clone()), false),
            Outcome::Reference(receipt) => (self.redeem(receipt, now), false),
            Outcome::Started => return None,
        };
        Some(Answer { command_id: command_id.to_string(), outcome: Some(outcome), replayed })
    }

    /// Mints what a receipt of a token stands for, once more.
    fn redeem(&self, receipt: &Bytes, now: SystemTime) -> answer::Outcome {
        match Receipt::decode(receipt.clone()).ok().and_then(|receipt| receipt.kind) {
            Some(receipt::Kind::Token(grant)) => match Uuid::try_parse(&grant.sandbox_id) {
                Ok(id) => {
                    let minted = self.mint(id, grant.generation, now);
                    answer::Outcome::Response(if grant.issued { issued(&minted) } else { refreshed(&minted, &grant) })
                }
                Err(_) => answer::Outcome::Status(status(&Refusal::Internal)),
            },
            _ => answer::Outcome::Status(status(&Refusal::Internal)),
        }
    }
}

fn issued(minted: &Minted) -> Bytes {
    let token = minted.token.expose_secret().to_owned();
    let response = IssueSandboxTokenResponse { token, expiration_time: Some(Timestamp::from(minted.expires_at)) };
    response.encode_to_vec().into()
}

fn refreshed(minted: &Minted, grant: &receipt::TokenGrant) -> Bytes {
    let token = minted.token.expose_secret().to_owned();
    let expiration_time = Some(Timestamp::from(minted.expires_at));
    let response = RefreshSandboxTokenResponse {
        sandbox_token: token.clone(),
        token,
        expiration_time,
        sandbox_expiration_time: expiration_time,
        credential_epoch: grant.generation,
        ..Default::default()
    };
    response.encode_to_vec().into()
}

/// A word for logs and metrics.
#[must_use]
pub const fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Response { replayed: false, .. } | Outcome::Reference(_) => "done",
        Outcome::Response { replayed: true, .. } => "replayed",
        Outcome::Refused(_) => "refused",
        Outcome::Started => "started",
    }
}

/// Code of a refusal, for logs and metrics.
#[derive(Clone, Copy, Debug)]
pub struct CodeOf<'a>(pub &'a Outcome);

impl fmt::Display for CodeOf<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Outcome::Refused(status) => {
                write!(formatter, "{:?}", roadstead_service_kit::status::from_bytes(status).code())
            }
            _ => formatter.write_str("Ok"),
        }
    }
}

#[cfg(test)]
mod tests {
    use roadstead_proto::sealing::SecretKey;
    use roadstead_service_kit::sandbox_token::TokenVerifier;

    use super::*;
    use crate::ledger::replay;

    #[test]
    fn a_reference_is_minted_again_for_the_same_generation() {
        let deployment = Uuid::from_u128(1);
        let secret = SecretKey::from_bytes([7; 32]);
        let public = ed25519_dalek::SigningKey::from_bytes(secret.expose()).verifying_key().to_bytes();
        let minter =
            Minter { signer: TokenSigner::new(deployment, "k".into(), &secret), lifetime: Duration::from_secs(900) };
        let verifier = TokenVerifier::new(deployment, [("k".to_owned(), public)]).unwrap();
        let id = Uuid::from_u128(2);
        let grant = receipt::TokenGrant { sandbox_id: id.to_string(), generation: 3, issued: false };
        let outcome = Outcome::Reference(replay::encoded(&replay::token(grant)));
        for seconds in [1_000, 2_000] {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            let answer = minter.answer(Uuid::nil(), &outcome, now).unwrap();
            let Some(answer::Outcome::Response(body)) = answer.outcome else { panic!("refused") };
            let response = RefreshSandboxTokenResponse::decode(body).unwrap();
            let identity = verifier.verify(&response.token, now).unwrap();
            assert_eq!((identity.sandbox_id, identity.generation), (id, 3));
            assert_eq!(identity.expires_at, now + Duration::from_secs(900));

            let grant = receipt::TokenGrant { sandbox_id: id.to_string(), generation: 4, issued: true };
            let outcome = Outcome::Reference(replay::encoded(&replay::token(grant)));
            let Some(answer::Outcome::Response(body)) = minter.answer(Uuid::nil(), &outcome, now).unwrap().outcome
            else {
                panic!("refused")
            };
            let response = IssueSandboxTokenResponse::decode(body).unwrap();
            assert_eq!(verifier.verify(&response.token, now).unwrap().generation, 4);
        }
    }

    #[test]
    fn what_was_started_has_no_answer() {
        let signer = TokenSigner::new(Uuid::nil(), "k".into(), &SecretKey::from_bytes([7; 32]));
        let minter = Minter { signer, lifetime: Duration::from_secs(1) };
        assert!(minter.answer(Uuid::nil(), &Outcome::Started, SystemTime::UNIX_EPOCH).is_none());
    }
}
