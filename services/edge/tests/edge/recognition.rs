//! Who is let in, through the port itself: every method, every kind of bad credential.

use std::time::{Duration, SystemTime};

use roadstead_proto::method::{AuthMode, Method};
use roadstead_proto::role::Role;
use roadstead_service_kit::keyring::Keyring;
use secrecy::ExposeSecret as _;
use tonic::{Code, Status};
use uuid::Uuid;

use crate::world::{ALICE, ROOT, World};

const HOUR: Duration = Duration::from_secs(3600);

fn sandbox_token(keyring: &Keyring, age: Duration) -> String {
    let signer = keyring.export(Role::Admission).token_signer().unwrap();
    signer.mint(Uuid::from_u128(7), 1, SystemTime::now() - age, HOUR).token.expose_secret().to_owned()
}

/// The token with one of its three parts replaced.
fn altered(token: &str, part: usize, by: &str) -> String {
    let mut parts = token.split('.').collect::<Vec<_>>();
    parts[part] = by;
    parts.join(".")
}

#[tokio::test(flavor = "multi_thread")]
async fn no_method_but_health_answers_to_a_bad_credential() {
    let world = World::new().await;
    let client = world.client(ROOT).await;
    let good = sandbox_token(&world.keyring, Duration::ZERO);
    let foreign = sandbox_token(&Keyring::generate(SystemTime::now()).unwrap(), Duration::ZERO);
    // {"alg":"none"} and {"alg":"HS256","typ":"JWT"}
    let (none, hs256) = ("eyJhbGciOiJub25lIn0", "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9");
    let bearer = |token: &str| format!("Bearer {token}");
    let presented = [
        vec![],
        vec![String::new()],
        vec!["Bearer".to_owned()],
        vec![bearer("")],
        vec![bearer("wrong-wrong-wrong-wrong")],
        vec![format!("Basic {ROOT}")],
        vec![bearer(ROOT), bearer(ROOT)],
        vec![bearer(ROOT), bearer(&good)],
        vec![bearer(&foreign)],
        vec![bearer(&sandbox_token(&world.keyring, 26 * HOUR))],
        vec![bearer(&altered(&good, 0, none))],
        vec![bearer(&altered(&good, 0, hs256))],
        vec![bearer(&altered(&good, 1, "e30"))],
        vec![bearer(&altered(&good, 2, ""))],
        vec![bearer(&altered(&good, 2, "AAAA"))],
        vec![bearer(good.split('.').next().unwrap())],
    ];
    for &method in Method::ALL.iter().filter(|&&method| method != Method::Health) {
        for headers in &presented {
            let headers = headers.iter().map(String::as_str).collect::<Vec<_>>();
            let refused = client.send_with(method, &headers, "").await.expect_err("a refusal");
            let told = (refused.code(), refused.message());
            assert_eq!(told, (Code::Unauthenticated, "a valid credential is required"), "{method} {headers:?}");
        }
    }
    client.send_with(Method::Health, &["Bearer wrong"], "").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_is_sent_to_the_bridge_or_away() {
    let world = World::with(&["--bridge-address=bridge.example:17671"]).await;
    let client = world.client(&sandbox_token(&world.keyring, Duration::ZERO)).await;
    for &method in Method::ALL {
        let refused: Status = match method.rule().auth {
            AuthMode::Unauthenticated => continue,
            _ => client.send(method, "").await.expect_err("a refusal"),
        };
        match method.rule().auth {
            AuthMode::Bearer | AuthMode::Operator => assert_eq!(refused.code(), Code::PermissionDenied, "{method}"),
            AuthMode::Peer => assert_eq!(refused.code(), Code::Unimplemented, "{method}"),
            AuthMode::Sandbox | AuthMode::Dual | AuthMode::Unauthenticated => {
                assert_eq!(refused.code(), Code::Unimplemented, "{method}");
                assert!(refused.message().contains("bridge.example:17671"), "{}", refused.message());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_is_held_to_the_rule_of_each_method() {
    let world = World::new().await;
    let client = world.client(ALICE).await;
    for &method in Method::ALL {
        let rule = method.rule();
        let expected = match (rule.auth, rule.scope) {
            (AuthMode::Sandbox | AuthMode::Operator, _) => "only",
            (AuthMode::Bearer | AuthMode::Dual, _) if rule.platform_admin => "role 'platform_admin' required",
            (AuthMode::Bearer | AuthMode::Dual, Some(scope)) if scope != "sandbox:read" => "scope",
            _ => continue,
        };
        let refused = client.send(method, "").await.expect_err("a refusal");
        assert_eq!(refused.code(), Code::PermissionDenied, "{method}");
        assert!(refused.message().contains(expected), "{method}: {}", refused.message());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_method_that_is_not_served_says_so() {
    let world = World::new().await;
    let client = world.client(ROOT).await;
    for method in [Method::CreateSshSession, Method::ExecSandbox, Method::GetDraftPolicy, Method::PeerRelay] {
        let refused = client.send(method, "").await.expect_err("a refusal");
        assert_eq!(refused.code(), Code::Unimplemented, "{method}");
        assert!(refused.message().contains("is not served"), "{}", refused.message());
    }
}
