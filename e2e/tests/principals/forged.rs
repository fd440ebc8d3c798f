//! Sandbox tokens as nobody should make them. They are built from the deployment's own key file, by code that shares
//! nothing with the one under test.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ed25519_dalek::{Signer as _, SigningKey};
use hmac::{Hmac, Mac as _};
use roadstead_testkit::Stack;
use serde_json::{Value, json};
use sha2::Sha256;

const DAY: u64 = 24 * 3600;

/// What signs tokens in this deployment.
pub(crate) struct Forge {
    key: SigningKey,
    key_id: String,
    issuer: String,
}

impl Forge {
    pub(crate) fn of(stack: &Stack) -> Self {
        let keys: Value = serde_json::from_slice(&std::fs::read(stack.keys_of("admission")).unwrap()).unwrap();
        let active = &keys["token_signing"]["active"];
        let secret: [u8; 32] = STANDARD.decode(active["key"].as_str().unwrap()).unwrap().try_into().unwrap();
        Self {
            key: SigningKey::from_bytes(&secret),
            key_id: active["id"].as_str().unwrap().to_owned(),
            issuer: format!("openshell-gateway:{}", keys["deployment"].as_str().unwrap()),
        }
    }

    fn header(&self) -> Value {
        json!({"alg": "EdDSA", "typ": "JWT", "kid": self.key_id})
    }

    fn claims(&self, sandbox_id: &str, generation: u64) -> Value {
        json!({
            "iss": self.issuer,
            "aud": self.issuer,
            "sub": format!("spiffe://openshell/sandbox/{sandbox_id}"),
            "sandbox_id": sandbox_id,
            "generation": generation,
            "auth_epoch": generation,
            "iat": now(),
            "exp": now() + 900,
        })
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let signed = signed_part(header, claims);
        let signature = self.key.sign(signed.as_bytes()).to_bytes();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// A token that is as it should be.
    pub(crate) fn good(&self, sandbox_id: &str, generation: u64) -> String {
        self.sign(&self.header(), &self.claims(sandbox_id, generation))
    }

    /// One mistake each.
    pub(crate) fn mutations(&self, sandbox_id: &str, other_id: &str, generation: u64) -> Vec<(&'static str, String)> {
        let (header, claims) = (self.header(), self.claims(sandbox_id, generation));
        let good = self.sign(&header, &claims);
        let (signed, signature) = good.rsplit_once('.').unwrap();
        let with = |what: &Value, name: &str, value: Value| {
            let mut changed = what.clone();
            changed[name] = value;
            changed
        };
        let without = |what: &Value, name: &str| {
            let mut changed = what.clone();
            changed.as_object_mut().unwrap().remove(name);
            changed
        };
        let claiming = |name: &str, value: Value| self.sign(&header, &with(&claims, name, value));
        let headed = |name: &str, value: Value| self.sign(&with(&header, name, value), &claims);

        let none = signed_part(&with(&header, "alg", json!("none")), &claims);
        let hs256 = signed_part(&with(&header, "alg", json!("HS256")), &claims);
        let mut mac = Hmac::<Sha256>::new_from_slice(self.key.verifying_key().as_bytes()).unwrap();
        mac.update(hs256.as_bytes());
        let hs256 = format!("{hs256}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()));
        let stranger = SigningKey::from_bytes(&[7; 32]).sign(signed.as_bytes()).to_bytes();
        let others = signed_part(&header, &self.claims(other_id, generation));
        let mut flipped = URL_SAFE_NO_PAD.decode(signature).unwrap();
        flipped[10] ^= 1;

        let expired = with(&with(&claims, "iat", json!(now() - 3 * DAY)), "exp", json!(now() - 2 * DAY));
        vec![
            ("algorithm none, unsigned", format!("{none}.")),
            ("algorithm none, with a signature", format!("{none}.{signature}")),
            ("HS256 with the public key", hs256),
            ("another algorithm's name", headed("alg", json!("ES256"))),
            ("another type", headed("typ", json!("ext+jwt"))),
            ("a key in the header", headed("jwk", json!({"kty": "OKP"}))),
            ("an unknown key id", headed("kid", json!("unknown"))),
            ("no key id", self.sign(&without(&header, "kid"), &claims)),
            ("another issuer", claiming("iss", json!("openshell-gateway:other"))),
            ("another audience", claiming("aud", json!("openshell-cli"))),
            ("no audience", self.sign(&header, &without(&claims, "aud"))),
            ("long expired", self.sign(&header, &expired)),
            ("no expiry", self.sign(&header, &without(&claims, "exp"))),
            ("expiry zero", claiming("exp", json!(0))),
            ("not valid yet", claiming("nbf", json!(now() + 600))),
            (
                "issued in the future",
                self.sign(&header, &with(&with(&claims, "iat", json!(now() + 600)), "exp", json!(now() + 900))),
            ),
            ("another subject than the sandbox", claiming("sandbox_id", json!(other_id))),
            ("no generation", self.sign(&header, &without(&claims, "generation"))),
            ("another epoch than the generation", claiming("auth_epoch", json!(generation + 1))),
            ("an empty signature", format!("{signed}.")),
            ("a flipped bit", format!("{signed}.{}", URL_SAFE_NO_PAD.encode(flipped))),
            ("signed by a stranger", format!("{signed}.{}", URL_SAFE_NO_PAD.encode(stranger))),
            ("another's claims under this signature", format!("{others}.{signature}")),
            ("one part", signed.split('.').next().unwrap().to_owned()),
            ("two parts", signed.to_owned()),
            ("four parts", format!("{good}.{signature}")),
            ("padding", format!("{good}==")),
        ]
    }
}

fn signed_part(header: &Value, claims: &Value) -> String {
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", encode(header), encode(claims))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}
