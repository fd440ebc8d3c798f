use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use prost_types::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use roadstead_proto::api::v1::ReportPolicyStatusRequest;
use roadstead_proto::internal::principal::Kind;
use roadstead_proto::internal::{Principal, User};
use roadstead_proto::method::Method;
use roadstead_proto::sealing::{DoorSeal, SecretKey};
use roadstead_proto::subject;
use roadstead_service_kit::bootstrap_token::Trust;
use roadstead_service_kit::sandbox_token::TokenSigner;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::*;

const NOW: SystemTime = SystemTime::UNIX_EPOCH;

struct Doors {
    opener: Opener,
    door: DoorSeal,
    signer: TokenSigner,
}

fn doors() -> Doors {
    let (deployment, key) = (Uuid::from_u128(9), SecretKey::from_bytes([3; 32]));
    let public = ed25519_dalek::SigningKey::from_bytes(key.expose()).verifying_key().to_bytes();
    let seal = AdmissionSeal::new([("a".to_owned(), SecretKey::from_bytes([5; 32]))]);
    let admission_public = seal.public_keys().next().unwrap().1;
    Doors {
        door: DoorSeal::new(admission_public, "a").unwrap(),
        signer: TokenSigner::new(deployment, "t".into(), &key),
        opener: Opener {
            seal,
            tokens: TokenVerifier::new(deployment, [("t".to_owned(), public)]).unwrap(),
            bootstrap: None,
            refreshes: Limit::new(2, Duration::from_secs(60), 10),
        },
    }
}

/// A platform that vouches for workloads.
struct Platform {
    key: EcdsaKeyPair,
    random: SystemRandom,
}

impl Platform {
    fn new() -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).unwrap();
        Self { key, random }
    }

    fn verifier(&self) -> BootstrapVerifier {
        let (point, text) = (self.key.public_key().as_ref(), |bytes: &[u8]| BASE64URL.encode(bytes));
        let key = json!({"kty": "EC", "kid": "k", "crv": "P-256", "x": text(&point[1..33]), "y": text(&point[33..])});
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), json!({"keys": [key]}).to_string()).unwrap();
        let (issuer, audience) = ("platform".into(), "roadstead".into());
        let trust = Trust { issuer, audience, subject: "{sandbox_id}".into(), keys: file.path().to_owned() };
        BootstrapVerifier::load(&trust).unwrap()
    }

    /// A token of the workload that is this sandbox, issued at [`NOW`].
    fn token(&self, sandbox: u128) -> String {
        let subject = Uuid::from_u128(sandbox).to_string();
        let claims = json!({"iss": "platform", "aud": "roadstead", "sub": subject, "iat": 0, "exp": 3600});
        let part = |value: &Value| BASE64URL.encode(value.to_string());
        let signed = format!("{}.{}", part(&json!({"alg": "ES256", "kid": "k"})), part(&claims));
        let signature = self.key.sign(&self.random, signed.as_bytes()).unwrap();
        format!("{signed}.{}", BASE64URL.encode(signature))
    }
}

fn user() -> Option<Principal> {
    Some(Principal { kind: Some(Kind::User(User { subject: "ann".into(), ..Default::default() })) })
}

impl Doors {
    fn supervisor(&self, sandbox: u128, generation: u64, lifetime: u64) -> Option<Principal> {
        let id = Uuid::from_u128(sandbox);
        let token = self.signer.mint(id, generation, NOW, Duration::from_secs(lifetime)).token;
        let token = token.expose_secret().to_owned();
        let identity = SandboxIdentity { sandbox_id: id.to_string(), generation, token };
        Some(Principal { kind: Some(Kind::Sandbox(identity)) })
    }

    fn open(
        &self,
        queue: Queue,
        name: Name,
        principal: Option<Principal>,
        now: SystemTime,
    ) -> Result<Envelope, Unopened> {
        let (id, role) = (Uuid::from_u128(1), queue.door());
        let reply = Inbox { role, process_id: Uuid::from_u128(2) }.answer(id);
        let payload = self.sealed(id, name.text(), principal);
        self.opener.open(queue, &subject_of(name), Some(&reply), &payload, now)
    }

    fn sealed(&self, id: Uuid, method: &str, principal: Option<Principal>) -> Bytes {
        let command = Command {
            command_id: id.to_string(),
            method: method.into(),
            principal,
            request: ReportPolicyStatusRequest::default().encode_to_vec().into(),
            deadline: Some(Timestamp { seconds: 60, nanos: 0 }),
            traceparent: String::new(),
        };
        self.door.seal_command(id, &command.encode_to_vec()).encode_to_vec().into()
    }
}

fn subject_of(name: Name) -> String {
    match name {
        Name::Method(method) => subject::command(method),
        Name::Report(report) => subject::report(report),
    }
}

const STOP: Name = Name::Method(Method::StopSandbox);
const STATUS: Name = Name::Report(Report::ReportPolicyStatus);

#[test]
fn what_a_door_sealed_opens() {
    let doors = doors();
    let command = doors.open(Queue::Commands, STOP, user(), NOW).unwrap().command;
    assert_eq!((command.name, command.id), (STOP, Uuid::from_u128(1)));
    assert!(matches!(command.caller, Caller::User(_)) && command.refused.is_none());
    let command = doors.open(Queue::Reports, STATUS, doors.supervisor(4, 1, 900), NOW).unwrap().command;
    assert!(matches!(command.caller, Caller::Sandbox { generation: 1, .. }) && command.refused.is_none());
}

#[test]
fn the_queue_decides_which_principal_an_envelope_may_carry() {
    let doors = doors();
    for (queue, name, principal) in [
        (Queue::Commands, STOP, doors.supervisor(4, 1, 900)),
        (Queue::Reports, STATUS, user()),
        (Queue::Commands, STOP, None),
        (Queue::Commands, STATUS, user()),
        (Queue::Reports, STOP, doors.supervisor(4, 1, 900)),
    ] {
        let opened = doors.open(queue, name, principal, NOW);
        assert!(matches!(opened, Err(Unopened::Poison(_) | Unopened::UnknownName)), "{queue:?} {name:?}");
    }
}

#[test]
fn a_sandboxs_credential_is_verified_again() {
    let doors = doors();
    let refused = |name, principal, seconds| {
        let now = NOW + Duration::from_secs(seconds);
        doors.open(Queue::Reports, Name::Report(name), principal, now).unwrap().command.refused
    };
    let Some(Principal { kind: Some(Kind::Sandbox(mut identity)) }) = doors.supervisor(4, 1, 100) else { panic!() };
    identity.sandbox_id = Uuid::from_u128(5).to_string();
    let swapped = Some(Principal { kind: Some(Kind::Sandbox(identity.clone())) });
    identity.token.clear();
    let without = Some(Principal { kind: Some(Kind::Sandbox(identity)) });
    for name in [Report::ReportPolicyStatus, Report::RegisterSession, Report::UpdateConfig] {
        assert_eq!(refused(name, doors.supervisor(4, 1, 100), 50), None);
        for (principal, seconds) in [(swapped.clone(), 50), (without.clone(), 50), (doors.supervisor(4, 1, 100), 500)] {
            assert!(matches!(refused(name, principal, seconds), Some(Refusal::Unauthenticated(_))), "{name:?}");
        }
    }
    // These are fenced by the session, which the bridge knows and the token outlives.
    assert_eq!(refused(Report::SessionResult, without.clone(), 500), None);
    assert_eq!(refused(Report::EndSession, without, 500), None);
}

#[test]
fn an_expired_token_can_be_refreshed_for_a_day_and_not_too_often() {
    let doors = doors();
    let refused = |sandbox, seconds| {
        let now = NOW + Duration::from_secs(seconds);
        let name = Name::Report(Report::RefreshSandboxToken);
        doors.open(Queue::Reports, name, doors.supervisor(sandbox, 1, 100), now).unwrap().command.refused
    };
    assert_eq!(refused(1, 80_000), None);
    assert!(matches!(refused(1, 90_000), Some(Refusal::Unauthenticated(_))));
    assert_eq!((refused(2, 50), refused(2, 50)), (None, None));
    assert!(matches!(refused(2, 50), Some(Refusal::Exhausted(_))));
    assert_eq!(refused(3, 50), None);
}

#[test]
fn without_a_platform_nobody_has_a_token_issued_whatever_a_door_says() {
    let doors = doors();
    let name = Name::Report(Report::IssueSandboxToken);
    let opened = doors.open(Queue::Reports, name, doors.supervisor(1, 0, 100), NOW).unwrap();
    assert_eq!(opened.command.refused, Some(Refusal::Unavailable));
    assert!(matches!(opened.command.caller, Caller::Sandbox { .. }), "vouched for by nobody");
}

#[test]
fn whom_a_platform_vouches_for_its_token_says_and_not_a_door() {
    let (mut doors, platform) = (doors(), Platform::new());
    doors.opener.bootstrap = Some(platform.verifier());
    let opened = |sandbox: u128, generation, token: String| {
        let identity = SandboxIdentity { sandbox_id: Uuid::from_u128(sandbox).to_string(), generation, token };
        let principal = Some(Principal { kind: Some(Kind::Sandbox(identity)) });
        let name = Name::Report(Report::IssueSandboxToken);
        let command = doors.open(Queue::Reports, name, principal, NOW).unwrap().command;
        (command.caller, command.refused)
    };
    for (sandbox, generation, token) in [
        (5, NO_GENERATION, platform.token(4)),
        (4, 1, platform.token(4)),
        (4, NO_GENERATION, Platform::new().token(4)),
        (4, NO_GENERATION, String::new()),
    ] {
        let (caller, refused) = opened(sandbox, generation, token);
        assert!(matches!(refused, Some(Refusal::Unauthenticated(_))), "{sandbox} {generation}: {refused:?}");
        assert!(matches!(caller, Caller::Sandbox { .. }), "vouched for by nobody");
    }
    for _ in 0..2 {
        let (caller, refused) = opened(4, NO_GENERATION, platform.token(4));
        assert_eq!(refused, None);
        let Caller::Bootstrap { id, issued_at } = caller else { panic!("{caller:?}") };
        assert_eq!((id, issued_at), (Uuid::from_u128(4), NOW));
    }
    let (_, refused) = opened(4, NO_GENERATION, platform.token(4));
    assert!(matches!(refused, Some(Refusal::Exhausted(_))), "{refused:?}");
}

#[test]
fn what_is_no_command_is_poison_and_a_foreign_key_is_not() {
    let doors = doors();
    let id = Uuid::from_u128(1);
    let inbox = Inbox { role: Role::Edge, process_id: Uuid::from_u128(2) };
    let reply = inbox.answer(id);
    let good = doors.sealed(id, "StopSandbox", user());
    let open = |subject: &str, reply: Option<&str>, payload: &Bytes| {
        doors.opener.open(Queue::Commands, subject, reply, payload, NOW).map(drop)
    };
    let subject = subject::command(Method::StopSandbox);
    assert_eq!(open(&subject, Some(&reply), &good), Ok(()));
    let bridge = Inbox { role: Role::SupervisorBridge, ..inbox }.answer(id);
    let other = inbox.answer(Uuid::from_u128(7));
    let moved = subject::command(Method::StartSandbox);
    for (subject, reply, payload) in [
        (&subject, None, &good),
        (&subject, Some(&bridge), &good),
        (&subject, Some(&other), &good),
        (&subject, Some(&reply), &Bytes::from_static(b"garbage")),
        (&moved, Some(&reply), &good),
    ] {
        let opened = open(subject, reply.map(String::as_str), payload);
        assert!(matches!(opened, Err(Unopened::Poison(_))), "{subject} {reply:?}");
    }
    assert_eq!(open("roadstead.command.Later", Some(&reply), &good), Err(Unopened::UnknownName));
    let elsewhere = AdmissionSeal::new([("b".to_owned(), SecretKey::from_bytes([6; 32]))]);
    let foreign = DoorSeal::new(elsewhere.public_keys().next().unwrap().1, "b").unwrap();
    let foreign = Doors { door: foreign, ..self::doors() }.sealed(id, "StopSandbox", user());
    assert_eq!(open(&subject, Some(&reply), &foreign), Err(Unopened::UnknownKey));
}
