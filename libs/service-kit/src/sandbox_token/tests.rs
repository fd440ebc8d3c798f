use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE, URL_SAFE_NO_PAD};
use hmac::{Hmac, Mac as _};
use proptest::prelude::*;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use sha2::Sha256;
use std::time::UNIX_EPOCH;

use super::*;

const DEPLOYMENT: Uuid = Uuid::from_u128(0x0000_0000_0000_4000_8000_0000_0000_0001);
const SANDBOX: Uuid = Uuid::from_u128(0x0190_abcd_0000_7000_8000_0000_0000_0002);
const NOW: u64 = 1_800_000_000;
const LIFETIME: Duration = Duration::from_secs(900);

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn key(byte: u8) -> SecretKey {
    SecretKey::from_bytes([byte; 32])
}

fn public(byte: u8) -> [u8; 32] {
    SigningKey::from_bytes(&[byte; 32]).verifying_key().to_bytes()
}

fn signer() -> TokenSigner {
    TokenSigner::new(DEPLOYMENT, "k1".to_owned(), &key(1))
}

fn verifier() -> TokenVerifier {
    TokenVerifier::new(DEPLOYMENT, [("k1".to_owned(), public(1)), ("k2".to_owned(), public(2))]).unwrap()
}

fn minted() -> String {
    signer().mint(SANDBOX, 7, at(NOW), LIFETIME).token.expose_secret().to_owned()
}

fn verdict(token: &str) -> Result<SandboxIdentity, TokenError> {
    verifier().verify(token, at(NOW))
}

fn header() -> Value {
    json!({"alg": "EdDSA", "typ": "JWT", "kid": "k1"})
}

fn claims() -> Value {
    let issuer = issuer(DEPLOYMENT);
    json!({
        "iss": issuer, "aud": issuer, "sub": format!("spiffe://openshell/sandbox/{SANDBOX}"),
        "sandbox_id": SANDBOX.to_string(), "generation": 7, "auth_epoch": 7, "iat": NOW, "exp": NOW + 900,
    })
}

fn with(mut object: Value, field: &str, value: Value) -> Value {
    object[field] = value;
    object
}

fn without(mut object: Value, field: &str) -> Value {
    object.as_object_mut().unwrap().remove(field);
    object
}

fn encoded(header: &str, claims: &str) -> String {
    format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims))
}

/// A token with these parts, signed as it should be.
fn signed(header: &Value, claims: &Value) -> String {
    signed_text(&header.to_string(), &claims.to_string())
}

fn signed_text(header: &str, claims: &str) -> String {
    let part = encoded(header, claims);
    let signature = SigningKey::from_bytes(&[1; 32]).sign(part.as_bytes());
    format!("{part}.{}", URL_SAFE_NO_PAD.encode(signature.to_bytes()))
}

fn parts(token: &str) -> [&str; 3] {
    token.split('.').collect::<Vec<_>>().try_into().unwrap()
}

#[test]
fn a_minted_token_says_who_it_is_for() {
    let expected = SandboxIdentity { sandbox_id: SANDBOX, generation: 7, expires_at: at(NOW + 900) };
    assert_eq!(verdict(&minted()), Ok(expected));
    assert_eq!(verdict(&signed(&header(), &claims())), Ok(expected));
}

#[test]
fn claims_of_later_versions_do_no_harm() {
    assert!(verdict(&signed(&header(), &with(claims(), "jti", json!("x")))).is_ok());
}

#[test]
fn an_old_key_still_verifies() {
    let old = TokenSigner::new(DEPLOYMENT, "k2".to_owned(), &key(2));
    assert!(verdict(old.mint(SANDBOX, 1, at(NOW), LIFETIME).token.expose_secret()).is_ok());
}

#[test]
fn the_algorithm_is_not_the_tokens_to_choose() {
    for algorithm in ["none", "None", "HS256", "RS256", "ES256", "eddsa", "EdDSA ", ""] {
        let token = signed(&with(header(), "alg", json!(algorithm)), &claims());
        assert_eq!(verdict(&token), Err(TokenError::Algorithm), "{algorithm}");
    }
    let unsigned = encoded(&with(header(), "alg", json!("none")).to_string(), &claims().to_string());
    assert_eq!(verdict(&format!("{unsigned}.")), Err(TokenError::Algorithm));
}

#[test]
fn the_public_key_is_no_shared_secret() {
    for algorithm in ["HS256", "EdDSA"] {
        let part = encoded(&with(header(), "alg", json!(algorithm)).to_string(), &claims().to_string());
        let mut mac = Hmac::<Sha256>::new_from_slice(&public(1)).unwrap();
        mac.update(part.as_bytes());
        let token = format!("{part}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()));
        assert!(matches!(verdict(&token), Err(TokenError::Algorithm | TokenError::Signature)));
    }
}

#[test]
fn issuer_and_audience_are_this_deployment() {
    let other = json!(issuer(Uuid::nil()));
    for field in ["iss", "aud"] {
        for wrong in [other.clone(), json!(""), json!("openshell-gateway:")] {
            assert_eq!(verdict(&signed(&header(), &with(claims(), field, wrong))), Err(TokenError::Foreign));
        }
        assert_eq!(verdict(&signed(&header(), &without(claims(), field))), Err(TokenError::Malformed));
    }
    let list = with(claims(), "aud", json!([issuer(DEPLOYMENT), "somebody else"]));
    assert_eq!(verdict(&signed(&header(), &list)), Err(TokenError::Malformed));
}

#[test]
fn times_count_with_a_minute_of_leeway() {
    let token = minted();
    let at_time = |seconds| verifier().verify(&token, at(seconds));
    assert!(at_time(NOW + 900 + 60).is_ok());
    assert_eq!(at_time(NOW + 900 + 61), Err(TokenError::Expired));
    assert!(at_time(NOW - 60).is_ok());
    assert_eq!(at_time(NOW - 61), Err(TokenError::NotYetValid));
    let future = |seconds| verdict(&signed(&header(), &with(claims(), "nbf", json!(NOW + seconds))));
    assert!(future(60).is_ok());
    assert_eq!(future(61), Err(TokenError::NotYetValid));
}

#[test]
fn a_token_can_be_renewed_for_a_day_after_its_expiry_and_not_used() {
    let token = minted();
    let day = 24 * 60 * 60;
    assert!(verifier().verify_for_refresh(&token, at(NOW + 900 + day)).is_ok());
    assert_eq!(verifier().verify(&token, at(NOW + 900 + day)), Err(TokenError::Expired));
    assert_eq!(verifier().verify_for_refresh(&token, at(NOW + 900 + day + 1)), Err(TokenError::Expired));
    assert_eq!(verifier().verify_for_refresh(&token, at(NOW - 61)), Err(TokenError::NotYetValid));
}

#[test]
fn a_token_that_never_expires_is_none() {
    for expiry in [json!(0), json!(NOW), json!(u64::MAX), json!(253_402_300_800_u64)] {
        let token = signed(&header(), &with(claims(), "exp", expiry));
        assert_eq!(verdict(&token), Err(TokenError::Claims));
    }
    for expiry in [json!("1800000900"), json!(-1), json!(1.8e9), Value::Null] {
        assert_eq!(verdict(&signed(&header(), &with(claims(), "exp", expiry))), Err(TokenError::Malformed));
    }
    assert_eq!(verdict(&signed(&header(), &without(claims(), "exp"))), Err(TokenError::Malformed));
}

#[test]
fn only_known_keys_count() {
    for id in ["k3", "", "../k1", "K1"] {
        let token = signed(&with(header(), "kid", json!(id)), &claims());
        assert_eq!(verdict(&token), Err(TokenError::UnknownKey));
    }
    assert_eq!(verdict(&signed(&without(header(), "kid"), &claims())), Err(TokenError::Malformed));
    // Right signature, wrong name for the key.
    let token = signed(&with(header(), "kid", json!("k2")), &claims());
    assert_eq!(verdict(&token), Err(TokenError::Signature));
}

#[test]
fn the_signature_must_be_there_and_fit() {
    let token = minted();
    let [header, claims, signature] = parts(&token);
    let short = &signature[..84];
    let zeros = URL_SAFE_NO_PAD.encode([0; 64]);
    let other = URL_SAFE_NO_PAD.encode(SigningKey::from_bytes(&[9; 32]).sign(b"x").to_bytes());
    for wrong in ["", short, &zeros, &other, &format!("{signature}AAAA")] {
        assert_eq!(verdict(&format!("{header}.{claims}.{wrong}")), Err(TokenError::Signature), "{wrong}");
    }
}

#[test]
fn a_token_has_three_parts() {
    let token = minted();
    let [header, claims, signature] = parts(&token);
    for wrong in [
        String::new(),
        ".".to_owned(),
        "..".to_owned(),
        header.to_owned(),
        format!("{header}.{claims}"),
        format!("{token}."),
        format!(".{token}"),
        format!("{token}.{signature}"),
        format!("{header}..{claims}.{signature}"),
        format!("{header}.{claims}.{signature}.{signature}"),
        "static-bearer-token".to_owned(),
    ] {
        assert!(verdict(&wrong).is_err(), "{wrong}");
    }
}

#[test]
fn each_value_has_one_text() {
    let token = minted();
    let [header, claims, signature] = parts(&token);
    let padded = |part: &str| URL_SAFE.encode(URL_SAFE_NO_PAD.decode(part).unwrap());
    let standard = STANDARD.encode(URL_SAFE_NO_PAD.decode(signature).unwrap());
    // The last character of 64 bytes holds four bits that mean nothing.
    let last = signature.chars().last().unwrap();
    let unused_bit_set = char::from(u8::try_from(last).unwrap() + 1);
    let noncanonical = format!("{}{unused_bit_set}", &signature[..signature.len() - 1]);
    for wrong in [
        format!("{}.{claims}.{signature}", padded(header)),
        format!("{header}.{claims}.{}", padded(signature)),
        format!("{header}.{claims}.{standard}"),
        format!("{header}.{claims}.{noncanonical}"),
        format!(" {token}"),
        format!("{token} "),
        format!("{token}\n"),
        format!("Bearer {token}"),
    ] {
        assert!(verdict(&wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_token_of_another_type_is_refused() {
    for kind in ["at+jwt", "extension+jwt", "jwt", ""] {
        assert_eq!(verdict(&signed(&with(header(), "typ", json!(kind)), &claims())), Err(TokenError::Foreign));
    }
    assert_eq!(verdict(&signed(&without(header(), "typ"), &claims())), Err(TokenError::Malformed));
}

#[test]
fn headers_that_ask_for_more_are_refused() {
    for field in ["crit", "jwk", "jku", "x5c", "b64", "zip"] {
        let token = signed(&with(header(), field, json!([])), &claims());
        assert_eq!(verdict(&token), Err(TokenError::Malformed), "{field}");
    }
}

#[test]
fn the_claims_agree_with_each_other() {
    let other = Uuid::from_u128(5).to_string();
    let upper = SANDBOX.to_string().to_uppercase();
    for (field, value) in [
        ("sandbox_id", json!(other)),
        ("sandbox_id", json!(upper)),
        ("sandbox_id", json!("")),
        ("sub", json!(format!("spiffe://openshell/sandbox/{other}"))),
        ("sub", json!(format!("spiffe://openshell/user/{SANDBOX}"))),
        ("sub", json!(format!("spiffe://openshell/sandbox/{}", SANDBOX.simple()))),
        ("auth_epoch", json!(8)),
        ("generation", json!(8)),
    ] {
        let token = signed(&header(), &with(claims(), field, value));
        assert_eq!(verdict(&token), Err(TokenError::Claims), "{field}");
    }
    let nil = Uuid::nil().to_string();
    let nobody =
        with(with(claims(), "sandbox_id", json!(nil)), "sub", json!(format!("spiffe://openshell/sandbox/{nil}")));
    assert_eq!(verdict(&signed(&header(), &nobody)), Err(TokenError::Claims));
}

#[test]
fn a_claim_said_twice_is_refused() {
    let twice = claims().to_string().replacen('{', r#"{"generation":9,"#, 1);
    assert_eq!(verdict(&signed_text(&header().to_string(), &twice)), Err(TokenError::Malformed));
    let twice = header().to_string().replacen('{', r#"{"kid":"k2","#, 1);
    assert_eq!(verdict(&signed_text(&twice, &claims().to_string())), Err(TokenError::Malformed));
}

#[test]
fn an_overlong_token_is_not_looked_at() {
    let token = signed(&header(), &with(claims(), "filler", json!("x".repeat(4096))));
    assert_eq!(verdict(&token), Err(TokenError::Malformed));
}

#[test]
fn neither_keys_nor_tokens_are_shown() {
    let minted = signer().mint(SANDBOX, 7, at(NOW), LIFETIME);
    let shown = format!("{minted:?} {:?} {:?}", signer(), verifier());
    assert!(!shown.contains(minted.token.expose_secret()) && !shown.contains("1, 1, 1"), "{shown}");
}

proptest! {
    #[test]
    fn what_is_minted_is_verified(sandbox in 1..u128::MAX, generation: u64, now in 1..4_000_000_000_u64, life in 1..86_400_u64) {
        let sandbox = Uuid::from_u128(sandbox);
        let minted = signer().mint(sandbox, generation, at(now), Duration::from_secs(life));
        let identity = verifier().verify(minted.token.expose_secret(), at(now)).unwrap();
        prop_assert_eq!(identity, SandboxIdentity { sandbox_id: sandbox, generation, expires_at: minted.expires_at });
    }

    #[test]
    fn no_changed_character_passes(place: prop::sample::Index, with in "[A-Za-z0-9_.=-]") {
        let token = minted();
        let place = place.index(token.len());
        prop_assume!(token[place..=place] != with);
        let changed = format!("{}{with}{}", &token[..place], &token[place + 1..]);
        prop_assert!(verdict(&changed).is_err());
    }

    #[test]
    fn no_cut_passes(place: prop::sample::Index) {
        let token = minted();
        prop_assert!(verdict(&token[..place.index(token.len())]).is_err());
    }

    #[test]
    fn garbage_is_refused(token in ".{0,200}") {
        prop_assert!(verdict(&token).is_err());
    }
}
