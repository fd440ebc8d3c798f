use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair, RsaPublicKeyComponents,
};
use serde_json::{Value, json};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;

use super::*;

const ISSUER: &str = "https://kubernetes.default.svc";
const NOW: u64 = 1_700_000_000;
/// Made for these tests, and good for nothing else.
const RSA: &[u8] = include_bytes!("rsa-for-tests.der");

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW)
}

struct Platform {
    rsa: RsaKeyPair,
    p256: EcdsaKeyPair,
    random: SystemRandom,
}

impl Platform {
    fn new() -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let p256 = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).unwrap();
        Self { rsa: RsaKeyPair::from_der(RSA).unwrap(), p256, random }
    }

    fn jwks(&self) -> Value {
        let text = |bytes: &[u8]| BASE64URL.encode(bytes);
        let point = self.p256.public_key().as_ref();
        let RsaPublicKeyComponents::<Vec<u8>> { n, e } = self.rsa.public().into();
        json!({"keys": [
            {"kty": "RSA", "kid": "r", "use": "sig", "alg": "RS256", "n": text(&n), "e": text(&e)},
            {"kty": "EC", "kid": "p", "crv": "P-256", "x": text(&point[1..33]), "y": text(&point[33..])},
            {"kty": "OKP", "kid": "o", "crv": "Ed25519", "x": "AA"},
        ]})
    }

    fn verifier(&self, subject: &str) -> Result<BootstrapVerifier, TrustError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), self.jwks().to_string()).unwrap();
        BootstrapVerifier::load(&Trust {
            issuer: ISSUER.into(),
            audience: "roadstead".into(),
            subject: subject.into(),
            keys: file.path().to_owned(),
        })
    }

    fn token(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| BASE64URL.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = if header["alg"] == "RS256" {
            let mut signature = vec![0; self.rsa.public().modulus_len()];
            self.rsa.sign(&RSA_PKCS1_SHA256, &self.random, signed.as_bytes(), &mut signature).unwrap();
            signature
        } else {
            self.p256.sign(&self.random, signed.as_bytes()).unwrap().as_ref().to_vec()
        };
        format!("{signed}.{}", BASE64URL.encode(signature))
    }
}

const SUBJECT: &str = "system:serviceaccount:agents:sandbox-{sandbox_id}";

fn claims(id: Uuid) -> Value {
    json!({
        "iss": ISSUER, "aud": ["roadstead"], "sub": SUBJECT.replace(PLACEHOLDER, &id.to_string()),
        "iat": NOW - 100, "nbf": NOW - 100, "exp": NOW + 3600, "kubernetes.io": {"namespace": "agents"},
    })
}

fn rs256() -> Value {
    json!({"alg": "RS256", "kid": "r"})
}

#[test]
fn a_clusters_token_names_its_sandbox_by_its_subject() {
    let platform = Platform::new();
    let verifier = platform.verifier(SUBJECT).unwrap();
    let id = Uuid::from_u128(0x1234);
    let expected = BootstrapIdentity { sandbox_id: id, issued_at: now() - Duration::from_secs(100) };
    for header in [rs256(), json!({"alg": "ES256", "kid": "p", "typ": "JWT"})] {
        assert_eq!(verifier.verify(&platform.token(&header, &claims(id)), now()), Ok(expected), "{header}");
    }
    for (claim, value) in [("aud", json!("roadstead")), ("exp", json!(NOW - 60)), ("exp", json!(i64::MAX))] {
        let mut claims = claims(id);
        claims[claim] = value.clone();
        let verified = verifier.verify(&platform.token(&rs256(), &claims), now());
        assert_eq!(verified, Ok(expected), "{claim}: {value}");
    }
}

#[test]
fn whatever_else_a_token_says_it_is_refused() {
    let platform = Platform::new();
    let verifier = platform.verifier(SUBJECT).unwrap();
    let id = Uuid::from_u128(0x1234);
    let subject = |text: &str| json!(SUBJECT.replace(PLACEHOLDER, text));
    for (claim, value, expected) in [
        ("iss", json!("https://elsewhere"), TokenError::Foreign),
        ("aud", json!(["other"]), TokenError::Foreign),
        ("aud", json!([]), TokenError::Foreign),
        ("sub", json!("system:serviceaccount:agents:default"), TokenError::Claims),
        ("sub", json!(format!("system:serviceaccount:other:sandbox-{id}")), TokenError::Claims),
        ("sub", subject(&format!("{id}x")), TokenError::Claims),
        ("sub", subject(&id.simple().to_string()), TokenError::Claims),
        ("sub", subject(&Uuid::nil().to_string()), TokenError::Claims),
        ("exp", json!(NOW - 61), TokenError::Expired),
        ("iat", json!(NOW - 24 * 3600 - 61), TokenError::Expired),
        ("iat", json!(NOW + 61), TokenError::NotYetValid),
        ("nbf", json!(NOW + 61), TokenError::NotYetValid),
        ("iat", json!(NOW + 3600), TokenError::Claims),
        ("exp", json!(u64::MAX), TokenError::Claims),
        ("exp", Value::Null, TokenError::Malformed),
    ] {
        let mut claims = claims(id);
        claims[claim] = value.clone();
        let verified = verifier.verify(&platform.token(&rs256(), &claims), now());
        assert_eq!(verified, Err(expected), "{claim}: {value}");
    }
}

#[test]
fn the_key_decides_on_the_algorithm_and_a_signature_covers_all() {
    let platform = Platform::new();
    let verifier = platform.verifier(SUBJECT).unwrap();
    let claims = claims(Uuid::from_u128(0x1234));
    for (header, expected) in [
        (json!({"alg": "RS256", "kid": "p"}), TokenError::Algorithm),
        (json!({"alg": "ES256", "kid": "r"}), TokenError::Algorithm),
        (json!({"alg": "none", "kid": "r"}), TokenError::Malformed),
        (json!({"alg": "HS256", "kid": "r"}), TokenError::Malformed),
        (json!({"alg": "RS256", "kid": "unknown"}), TokenError::UnknownKey),
        (json!({"alg": "RS256"}), TokenError::Malformed),
        (json!({"alg": "RS256", "kid": "r", "crit": ["x"]}), TokenError::Malformed),
    ] {
        assert_eq!(verifier.verify(&platform.token(&header, &claims), now()), Err(expected), "{header}");
    }
    let token = platform.token(&rs256(), &claims);
    let other = platform.token(&rs256(), &self::claims(Uuid::from_u128(0x9999)));
    let parts = |token: &str| token.split('.').map(str::to_owned).collect::<Vec<_>>();
    let mixed = [parts(&token)[0].clone(), parts(&other)[1].clone(), parts(&token)[2].clone()].join(".");
    assert_eq!(verifier.verify(&mixed, now()), Err(TokenError::Signature));
    for text in ["", "a.b", "a.b.c", &"x".repeat(9000)] {
        assert_eq!(verifier.verify(text, now()), Err(TokenError::Malformed));
    }
}

#[test]
fn what_can_be_believed_is_checked_at_the_start() {
    let platform = Platform::new();
    for subject in ["sandbox", "{sandbox_id}{sandbox_id}"] {
        assert!(matches!(platform.verifier(subject), Err(TrustError::Subject)), "{subject}");
    }
    let key = |set: &Value| Keys::parse(set.to_string().as_bytes()).err();
    assert_eq!(Keys::parse(b"[]").err(), Some(KeysError::Malformed));
    assert_eq!(key(&json!({"keys": [{"kty": "OKP", "kid": "o"}, {"kty": "RSA"}]})), Some(KeysError::Nothing));
    assert_eq!(key(&json!({"keys": [{"kty": "RSA", "kid": "r", "n": "!", "e": "AQAB"}]})), Some(KeysError::Malformed));
    let twice = json!({"kty": "RSA", "kid": "r", "n": "AQAB", "e": "AQAB"});
    assert_eq!(key(&json!({"keys": [twice, twice]})), Some(KeysError::Twice));
}
