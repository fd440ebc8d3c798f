//! `IssueSandboxToken`: a platform vouches for a workload, which then has the token of its own sandbox and no other.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use roadstead_e2e::api::{client, request_id, scope};
use roadstead_proto::api::sandbox::GetSandboxConfigRequest;
use roadstead_proto::api::v1::{IssueSandboxTokenRequest, SandboxPhase, StopSandboxRequest};
use roadstead_supervisor::{Settings, TokenSource};
use roadstead_testkit::stack::{Plan, Role};
use serde_json::{Value, json};
use tonic::{Code, Request};
use uuid::Uuid;

use crate::world::{Supervised, World};

const ISSUER: &str = "https://cluster.example";

/// A cluster that issues service-account tokens.
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

    fn keys(&self) -> Value {
        let (point, text) = (self.key.public_key().as_ref(), |bytes: &[u8]| BASE64URL.encode(bytes));
        json!({"keys": [{"kty": "EC", "kid": "k", "crv": "P-256", "x": text(&point[1..33]), "y": text(&point[33..])}]})
    }

    /// A token of the workload that is this sandbox, issued so long ago.
    fn token(&self, sandbox_id: &str, age: Duration) -> String {
        let issued = (SystemTime::now() - age).duration_since(UNIX_EPOCH).unwrap().as_secs();
        let subject = format!("system:serviceaccount:agents:sandbox-{sandbox_id}");
        let claims = json!({"iss": ISSUER, "aud": ["roadstead"], "sub": subject, "iat": issued, "exp": issued + 3600});
        let part = |value: &Value| BASE64URL.encode(value.to_string());
        let signed = format!("{}.{}", part(&json!({"alg": "ES256", "kid": "k"})), part(&claims));
        let signature = self.key.sign(&self.random, signed.as_bytes()).unwrap();
        format!("{signed}.{}", BASE64URL.encode(signature))
    }
}

fn with<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}

async fn issue(world: &World, token: &str) -> Result<String, Code> {
    let mut bridge = client(&world.stack.bridge(1));
    let issued = bridge.issue_sandbox_token(with(token, IssueSandboxTokenRequest::default())).await;
    issued.map(|response| response.into_inner().token).map_err(|status| status.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_its_platform_vouches_for_has_its_own_sandboxs_token_issued_and_no_other() {
    let (platform, folder) = (Platform::new(), tempfile::tempdir().unwrap());
    let keys = folder.path().join("jwks.json");
    std::fs::write(&keys, platform.keys().to_string()).unwrap();
    let flags = [
        format!("--bootstrap-keys={}", keys.display()),
        format!("--bootstrap-issuer={ISSUER}"),
        "--bootstrap-subject=system:serviceaccount:agents:sandbox-{sandbox_id}".to_owned(),
    ];
    let plan = flags
        .into_iter()
        .fold(Plan::single(), |plan, flag| plan.flag(Role::SupervisorBridge, flag.clone()).flag(Role::Admission, flag));
    let world = World::start(plan).await;
    let id = world.sandbox("vouched", &[]).await;
    let vouched = platform.token(&id, Duration::ZERO);

    let token = issue(&world, &vouched).await.unwrap();
    assert_eq!(issue(&world, &token).await, Err(Code::PermissionDenied), "a sandbox's own token");
    let read = with(&vouched, GetSandboxConfigRequest::default());
    let read = client(&world.stack.bridge(1)).get_sandbox_config(read).await.unwrap_err();
    assert_eq!(read.code(), Code::Unauthenticated, "it is good for one call");
    let unknown = platform.token(&Uuid::new_v4().to_string(), Duration::ZERO);
    assert_eq!(issue(&world, &unknown).await, Err(Code::NotFound));
    let forged = Platform::new().token(&id, Duration::ZERO);
    assert_eq!(issue(&world, &forged).await, Err(Code::Unauthenticated));
    let before_its_start = platform.token(&id, Duration::from_secs(300));
    assert_eq!(issue(&world, &before_its_start).await, Err(Code::Unauthenticated));

    let settings = Settings {
        bridges: vec![world.stack.bridge(1)],
        ..Settings::new("", &world.workspace, "vouched", TokenSource::Given(token.into()))
    };
    let supervised = Supervised::start(settings);
    world.until_phase("vouched", SandboxPhase::Ready).await;
    supervised.supervisor.stop().await;

    let stop = StopSandboxRequest {
        workspace_scope: scope(&world.workspace),
        name: "vouched".to_owned(),
        request_id: request_id(),
    };
    world.until_phase("vouched", SandboxPhase::Provisioning).await;
    let supervised = Supervised::start(world.settings("vouched").await);
    world.until_phase("vouched", SandboxPhase::Ready).await;
    world.api().stop_sandbox(stop).await.unwrap();
    assert_eq!(issue(&world, &vouched).await, Err(Code::FailedPrecondition), "nobody may connect");
    let mut codes = Vec::new();
    while codes.last() != Some(&Err(Code::ResourceExhausted)) && codes.len() < 20 {
        codes.push(issue(&world, &vouched).await);
    }
    assert_eq!(codes.last(), Some(&Err(Code::ResourceExhausted)), "so often a minute and no more");
    drop(supervised);
}
