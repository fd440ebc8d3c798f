//! What each purpose's key is called and how it comes from a master key.

use nkeys::{KeyPair, KeyPairType};
use roadstead_proto::role::Role;
use roadstead_proto::sealing::{self, SecretKey};
use secrecy::SecretString;
use uuid::Uuid;

/// What a derived key is for. One purpose, one label, one version; a label is never used anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Seed of a role's broker user.
    Broker(Role),
    /// Password of a role's Postgres user.
    Postgres(Role),
    /// Password of the Postgres user that owns the schema.
    PostgresOwner,
    /// Ed25519, signs sandbox tokens.
    SandboxToken,
    /// X25519, opens commands.
    Seal,
    /// HMAC over canonical payloads in the ledger.
    Fingerprint,
    /// Encrypts credentials at rest.
    Credential,
    /// Encrypts environments on their way to the bridge.
    Snapshot,
    /// HMAC that tells equal environments.
    EnvironmentDigest,
    /// HMAC in page tokens.
    PageToken,
}

impl Purpose {
    fn label(self) -> String {
        match self {
            Self::Broker(role) => format!("roadstead/v1/broker/{role}"),
            Self::Postgres(role) => format!("roadstead/v1/postgres/{role}"),
            Self::PostgresOwner => "roadstead/v1/postgres-owner".to_owned(),
            Self::SandboxToken => "roadstead/v1/sandbox-token".to_owned(),
            Self::Seal => "roadstead/v1/seal".to_owned(),
            Self::Fingerprint => "roadstead/v1/mutation-fingerprint".to_owned(),
            Self::Credential => "roadstead/v1/credential".to_owned(),
            Self::Snapshot => "roadstead/v1/snapshot".to_owned(),
            Self::EnvironmentDigest => "roadstead/v1/environment-digest".to_owned(),
            Self::PageToken => "roadstead/v1/page-token".to_owned(),
        }
    }
}

/// The purpose's key of this deployment.
pub(crate) fn key(master: &SecretKey, deployment: Uuid, purpose: Purpose) -> SecretKey {
    sealing::derive(master, deployment.as_bytes(), &purpose.label())
}

/// A password: the key in hexadecimal.
pub(crate) fn password(key: &SecretKey) -> SecretString {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |four_bits: u8| char::from(DIGITS[usize::from(four_bits)]);
    let text: String = key.expose().iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0x0f)]).collect();
    text.into()
}

/// A user of the broker.
#[derive(Debug)]
pub(crate) struct BrokerUser {
    pub(crate) seed: SecretString,
    pub(crate) public_key: String,
}

/// The broker user whose seed is the key.
#[allow(clippy::expect_used, reason = "any 32 bytes are a seed, and a pair made from a seed has one")]
pub(crate) fn broker_user(key: &SecretKey) -> BrokerUser {
    let pair = KeyPair::new_from_raw(KeyPairType::User, *key.expose()).expect("any 32 bytes are a seed");
    BrokerUser { seed: pair.seed().expect("made from a seed").into(), public_key: pair.public_key() }
}

/// The public half of the key that opens commands.
pub(crate) fn seal_public(key: &SecretKey) -> SecretKey {
    let secret = x25519_dalek::StaticSecret::from(*key.expose());
    SecretKey::from_bytes(x25519_dalek::PublicKey::from(&secret).to_bytes())
}

/// The public half of the key that signs sandbox tokens.
pub(crate) fn token_public(key: &SecretKey) -> SecretKey {
    let signing = ed25519_dalek::SigningKey::from_bytes(key.expose());
    SecretKey::from_bytes(signing.verifying_key().to_bytes())
}
